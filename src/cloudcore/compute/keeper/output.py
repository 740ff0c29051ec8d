"""The output of an instance: two files, of which the older is written over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NEWER: Final = "output"
OLDER: Final = "output.older"
MOST_BYTES: Final = 5_000_000
"""Of each file."""


class Output:
    """Takes what an instance writes."""

    def __init__(self, folder: Path = Path()) -> None:
        """Go on after what the folder has."""
        self._folder = folder
        self.last_line = b""
        self._open()

    def write(self, data: bytes) -> None:
        """Keep some more; what the machine's disk has no room for is lost."""
        self.last_line = (self.last_line + data)[-500:].rstrip().rpartition(b"\n")[2]
        while data:
            part = data[: MOST_BYTES - self._size]
            self._keep(part)
            data = data[len(part) :]
            if self._size == MOST_BYTES:
                os.close(self._file)
                (self._folder / NEWER).replace(self._folder / OLDER)
                self._open()

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        try:
            os.write(self._file, part)
        except OSError:
            return

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._folder / NEWER, flags, 0o600)
        self._size = os.fstat(self._file).st_size


def tail(folder: Path, most: int) -> bytes:
    """Return the end of an output, while it may be written to."""
    while True:
        newer, older = _read(folder / NEWER), _read(folder / OLDER)
        if _read(folder / NEWER)[0] == newer[0]:  # else they have changed places between the two
            return (older[1] + newer[1])[-most:] if most > 0 else b""


def _read(path: Path) -> tuple[int, bytes]:
    """Return the number of a file's inode, and its bytes."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_ino, file.read(MOST_BYTES)
    except FileNotFoundError:
        return 0, b""
