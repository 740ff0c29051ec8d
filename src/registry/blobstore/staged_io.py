"""The open file of staged bytes: reads, writes, and whether what was written is durable."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

_EDGE_BYTES: Final = 64 * 1024
"""At least a block of any file system, and a page of memory."""


class StagedIO:
    """The descriptor of a locked staged file.

    Every method raises OSError if the disk fails. After a failed flush, `on_failed_flush` is called
    first: the kernel forgets which pages it lost, so a second flush that succeeds proves nothing.
    """

    def __init__(self, descriptor: int, on_failed_flush: Callable[[], None]) -> None:
        self.descriptor: Final = descriptor
        self.is_durable = False
        self._on_failed_flush = on_failed_flush

    def size(self) -> int:
        """Return the size of the file."""
        return os.fstat(self.descriptor).st_size

    def write(self, view: memoryview, offset: int) -> int:
        """Write some bytes of `view`; return how many."""
        self.is_durable = False
        return os.pwrite(self.descriptor, view, offset)

    def write_all(self, view: memoryview, offset: int) -> None:
        """Write all bytes of `view`."""
        written = 0
        while written < len(view):
            written += self.write(view[written:], offset + written)

    def truncate(self, size: int) -> None:
        """Cut the file off, or extend it with zeros."""
        self.is_durable = False
        os.ftruncate(self.descriptor, size)

    def cut(self, size: int) -> None:
        """Cut the file off if it is longer than `size`."""
        if self.size() > size:
            self.truncate(size)

    def flush(self) -> None:
        """Make what was written durable."""
        try:
            os.fsync(self.descriptor)
        except OSError:
            self._on_failed_flush()
            raise
        self.is_durable = True

    def rewrite_edge(self, end: int) -> None:
        """Write the last block before `end` again (`rewrite`)."""
        if end:
            self.rewrite((end - 1) // _EDGE_BYTES * _EDGE_BYTES, end)

    def rewrite(self, start: int, end: int) -> None:
        """Write bytes of the file again as they are, for a flush that follows.

        They come from the page cache or the disk; if they are wrong, the commit finds it.
        """
        part = bytearray(end - start)
        if os.preadv(self.descriptor, [part], start) != len(part):
            raise OSError(errno.EIO, "a staged file has become shorter")
        self.write_all(memoryview(part), start)


def read_exactly(descriptor: int, view: memoryview, offset: int) -> bool:
    """Fill `view` from a file; return False if the file ends before."""
    filled = 0
    while filled < len(view):
        count = os.preadv(descriptor, [view[filled:]], offset + filled)
        if not count:
            return False
        filled += count
    return True
