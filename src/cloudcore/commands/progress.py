"""Show the progress of long work on one line, and wait for runs in the background."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self, TextIO

from cloudcore.command_failures import CommandFailure
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Option, Record
from cloudcore.commands.records import by_column, text_of

WAIT: Final = Option("wait", "until it is done; exit 1 if it failed", "flag")
COLUMNS: Final = (
    "id",
    "status",
    "started_at",
    "finished_at",
    by_column("started_by", "started_by_source"),
)
"""The first columns of a list of runs."""
_SLOWEST: Final = 2.0
"""Maximum pause between two requests, in seconds."""


class ProgressLine:
    """A line of progress; on a terminal it overwrites the previous text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._shown_at = 0.0
        self._text = ""

    def show(self, text: str) -> None:
        """Show `text`, at most every 0.1 s on a terminal, else at most every 10 s."""
        self._text = text
        now = time.monotonic()
        if now - self._shown_at < (0.1 if self._is_terminal else 10):
            return
        self._shown_at = now
        self._write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Print the last text and end the line."""
        self._write()
        if self._is_terminal:
            self._stream.write("\n")
        self._stream.flush()

    def _write(self) -> None:
        if self._text:
            self._stream.write(f"\r\x1b[K{self._text}" if self._is_terminal else f"{self._text}\n")
            self._stream.flush()


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress on a terminal, and does nothing without one."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    with ProgressLine(sys.stderr) as line:
        yield line.show


def start_run(
    invocation: Invocation, path: str, said: str, words: Callable[[Record], str], runs: str = ""
) -> Record | None:
    """Start a run. With ``--wait``, return the run once it has ended.

    Without it, print `said` and return None. `runs` is the path of the list of runs, if that is not
    `path`; `words` formats the progress.
    """
    run: Record = invocation.client.create(path)["run"]
    if "wait" not in invocation.values:
        invocation.say(invocation.text(said, run), run)
        return None
    pause = 0.1
    with progress() as show:
        while run["status"] == "running":
            show(words(run))
            time.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST)
            run = invocation.client.call("GET", f"{runs or path}/{run['id']}")["run"]
    return run


def report_end(invocation: Invocation, run: Record, words: str) -> None:
    """Print the status of a run that has ended, followed by `words`.

    Raise `CommandFailure` if the run failed.
    """
    invocation.say(f"{run['status'].capitalize()}: {words}", run)
    if run["status"] == "failed":
        raise CommandFailure(f"the run failed: {text_of(run['fault'])}")
