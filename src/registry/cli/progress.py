"""Progress of long work, on one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


class ProgressLine:
    """One line that tells how far long work has come; on a terminal it is written over."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._shown_at = 0.0
        self._text = ""

    def show(self, text: str) -> None:
        """Show `text`, at most ten times a second, or each ten seconds where no one looks on."""
        self._text = text
        now = time.monotonic()
        if now - self._shown_at < (0.1 if self._is_terminal else 10):
            return
        self._shown_at = now
        self._write()

    def end(self) -> None:
        """Leave the last state in sight."""
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
    """Yield a function that shows how far work has come, when a person looks on."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    line = ProgressLine(sys.stderr)
    try:
        yield line.show
    finally:
        line.end()
