"""Let a child process write the SQL of the statements, so that this one needs no SQLAlchemy."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

import msgspec

_COMMAND: Final = (sys.executable, "-P", "-c", "from cloudcore.db.sql_writer import main; main()")


class _Wanted(msgspec.Struct):
    dialect: str
    modules: list[str]


_Texts = dict[str, list[str]]


class SqlWriter:
    """Writes the SQL of modules: a child imports them with SQLAlchemy, answers, and ends.

    The first child starts at once, and loads SQLAlchemy while its parent loads other things.
    """

    def __init__(self) -> None:
        self._prepared: subprocess.Popen[bytes] | None = _start()

    def __call__(self, dialect: str, modules: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the texts of each module, in the order in which it makes its statements.

        Raises:
            RuntimeError: the child failed; it has written why on standard error.

        """
        child, self._prepared = self._prepared or _start(), None
        answer, _ = child.communicate(msgspec.json.encode(_Wanted(dialect, list(modules))))
        if child.returncode:
            raise RuntimeError(f"the process that writes SQL ended with status {child.returncode}")
        return msgspec.json.decode(answer, type=_Texts)


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own command
        _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def main() -> None:
    """Be the child; without a question, end."""
    gc.disable()  # it lives for a second, and keeps nearly all that it makes
    from cloudcore.db.statement import texts_of  # noqa: PLC0415 - the parent must not

    question = sys.stdin.buffer.read()
    if question:
        wanted = msgspec.json.decode(question, type=_Wanted)
        for module in wanted.modules:
            import_module(module)
        texts = {module: texts_of(module, wanted.dialect) for module in wanted.modules}
        sys.stdout.buffer.write(msgspec.json.encode(texts))
        sys.stdout.flush()
