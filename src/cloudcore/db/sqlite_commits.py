"""See the commits of all processes to an SQLite file, without a system call.

In WAL mode each commit changes the first bytes of the file's ``-shm``, the index of the log. Every
process that has the database open maps them, and SQLite itself compares them, at the beginning of a
read, with those that it saw last; nothing is visible to a reader before they change. They hold a
count of the commits and checksums of the log, so they never become again what they were
(https://www.sqlite.org/walformat.html#the_wal_index_header).

They are read where SQLite has mapped them. A mapping of our own would need a descriptor of the
file, and to close that would drop all locks that this process has on it.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Final

HEADER_BYTES: Final = 48
"""Size of the header, which is there twice: a writer changes one after the other."""
_VERSION: Final = 3_007_000
"""Of this format, in its first four bytes; the only one there is."""

_MAPPING: Final = re.compile(
    rb"^([0-9a-f]+)-[0-9a-f]+ r..s 0+ [0-9a-f]+:[0-9a-f]+ (\d+) .*-shm$", re.MULTILINE
)
_Headers = ctypes.c_char * (2 * HEADER_BYTES)


class CommitCount:
    """Counts the moments at which something was found to be committed to one open database."""

    def __init__(self, headers: ctypes.Array[ctypes.c_char]) -> None:
        """Read `headers`, the two at the beginning of the index."""
        self._headers = headers
        self._seen = b""
        self._changes = 0

    def value(self) -> int:
        """Return a number that is another one if anything was committed since the last call.

        Call it only while a connection of this process has the database open.
        """
        headers = self._headers.raw
        if headers != self._seen:  # also if a writer is just changing them: they change again
            self._seen = headers
            self._changes += 1
        return self._changes


def commit_count(path: Path) -> CommitCount | None:
    """Return the count of commits to the database at `path`, which a connection has read from.

    None if its index is not mapped here, or has another format.
    """
    try:
        number = path.with_name(f"{path.name}-shm").stat().st_ino
        maps = Path("/proc/self/maps").read_bytes()
    except OSError:
        return None
    for start, inode in _MAPPING.findall(maps):
        if int(inode) == number:
            headers = _Headers.from_address(int(start, 16))
            if ctypes.c_uint32.from_buffer(headers).value == _VERSION:
                return CommitCount(headers)
    return None
