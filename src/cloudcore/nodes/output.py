"""Store the output of a program in two files of bounded size; overwrite the older one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

NEWER: Final = "output"
OLDER: Final = "output.older"
MOST_BYTES: Final = 5_000_000
"""Maximum size of each file."""


class Output:
    """Writes the output of a program to its folder."""

    def __init__(self, folder: Path = Path()) -> None:
        """Continue after the output that the folder already has."""
        self._folder = folder
        self.last_line = b""
        self._open()

    def write(self, data: bytes) -> None:
        """Append data; drop bytes for which the machine's disk has no room."""
        self.last_line = (self.last_line + data)[-500:].rstrip().rpartition(b"\n")[2]
        while data:
            part = data[: MOST_BYTES - self._size]
            self._size += len(part)
            with suppress(OSError):
                os.write(self._file, part)
            data = data[len(part) :]
            if self._size == MOST_BYTES:
                os.close(self._file)
                (self._folder / NEWER).replace(self._folder / OLDER)
                self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._folder / NEWER, flags, 0o600)
        self._size = os.fstat(self._file).st_size


def tail(folder: Path, most: int) -> bytes:
    """Return the last `most` bytes of an output, even while it is being written."""
    while True:
        inode, newer = _end(folder / NEWER, most)
        _, older = _end(folder / OLDER, most - len(newer))
        if _end(folder / NEWER, 0)[0] == inode:  # else they changed places between the reads
            return older + newer


def _end(path: Path, most: int) -> tuple[int, bytes]:
    """Return a file's inode number, and its last `most` bytes."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            file.seek(max(0, found.st_size - most))
            return found.st_ino, file.read(max(0, most))
    except FileNotFoundError:
        return 0, b""
