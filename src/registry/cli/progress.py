"""Show the progress of long work on one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


class ProgressLine:
    """A line of progress, which on a terminal overwrites the one before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._shown_at = 0.0
        self._text = ""

    def show(self, text: str) -> None:
        """Show `text`: at most every 0.1 seconds on a terminal, every 10 seconds elsewhere."""
        self._text = text
        now = time.monotonic()
        if now - self._shown_at < (0.1 if self._is_terminal else 10):
            return
        self._shown_at = now
        self._write()

    def end(self) -> None:
        """Write the last text, and end the line."""
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
    line = ProgressLine(sys.stderr)
    try:
        yield line.show
    finally:
        line.end()
