"""Let a child process write the SQL of the statements, so that this one needs no SQLAlchemy."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Final

import msgspec

_COMMAND: Final = (sys.executable, "-P", "-c", "from cloudcore.db.sql_writer import main; main()")

LIMIT_SECONDS: Final = 120.0
"""Most time that an answer, or the end of the child, may take; it takes three on a slow machine."""


class _Wanted(msgspec.Struct):
    dialect: str
    modules: list[str]


_Texts = dict[str, list[str]]


class SqlWriter:
    """Writes the SQL of modules: a child imports them with SQLAlchemy, and answers in JSON lines.

    The first child starts at once, and writes while its parent loads other things. After `close`,
    each question starts another, which ends with its answer.
    """

    def __init__(self, dialect: str = "", modules: Sequence[str] = ()) -> None:
        """Begin to write the SQL of `modules`, which will be asked for."""
        self._is_closed = False
        self._child: subprocess.Popen[bytes] | None = _start(dialect, *modules)

    def write(self, dialect: str, modules: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the texts of each module, in the order in which it makes its statements.

        Call it on one thread at a time.

        Raises:
            RuntimeError: the child has ended, and has written why on standard error; or it was
                killed, as it took more than `LIMIT_SECONDS`.

        """
        if self._child is None:
            self._child = _start()
        asked, answers = self._child.stdin, self._child.stdout
        assert asked is not None
        assert answers is not None
        try:
            with _limited(self._child):
                asked.write(msgspec.json.encode(_Wanted(dialect, list(modules))) + b"\n")
                asked.flush()
                return msgspec.json.decode(answers.readline(), type=_Texts)
        except (BrokenPipeError, msgspec.DecodeError):
            raise RuntimeError(
                "the process that writes SQL has ended; see its error, if it has written one: it"
                f" is killed if it takes more than {LIMIT_SECONDS:.0f} seconds"
            ) from None
        finally:
            if self._is_closed:
                self.close()

    def close(self) -> None:
        """Let the child end, and wait for it."""
        self._is_closed = True
        if self._child is not None:
            with _limited(self._child), suppress(BrokenPipeError):
                self._child.communicate()
            self._child = None


@contextmanager
def _limited(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a child that takes too long, so that nobody waits for it for ever."""
    timer = threading.Timer(LIMIT_SECONDS, child.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # processes that are forked next have no other thread


def _start(*expected: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own command
        [*_COMMAND, *expected], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def main() -> None:
    """Be the child: answer each line of standard input, until there are no more."""
    gc.disable()  # it lives for seconds, and keeps nearly all that it makes
    from cloudcore.db.statement import texts_of  # noqa: PLC0415 - the parent must not load it

    def texts(dialect: str, modules: Sequence[str]) -> _Texts:
        for module in modules:
            import_module(module)
        return {module: texts_of(module, dialect) for module in modules}

    dialect, *modules = sys.argv[1:] or [""]
    texts(dialect, modules)  # each statement keeps its text
    for line in sys.stdin.buffer:
        wanted = msgspec.json.decode(line, type=_Wanted)
        answer = texts(wanted.dialect, wanted.modules)
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
