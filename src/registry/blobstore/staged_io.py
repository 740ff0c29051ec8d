"""The open file of staged bytes, and the writer of plain bytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from typing import Final

from registry.blobstore.base import PLAIN
from registry.oci.digest import Hasher

_EDGE_BYTES: Final = 64 * 1024
"""Not smaller than a block of any file system, or a page of memory."""


class StagedIO:
    """The descriptor of a locked staged file.

    Every method raises `OSError` if the disk fails. A failed flush first calls `on_failed_flush`:
    the kernel forgets which pages it lost, so a second flush that succeeds proves nothing.
    """

    def __init__(self, descriptor: int, on_failed_flush: Callable[[], None]) -> None:
        self.descriptor: Final = descriptor
        self.is_durable = False
        self._on_failed_flush = on_failed_flush

    def size(self) -> int:
        """Return the size of the file."""
        return os.fstat(self.descriptor).st_size

    def write(self, view: memoryview, offset: int) -> int:
        """Write some bytes of `view`; return their number."""
        self.is_durable = False
        return os.pwrite(self.descriptor, view, offset)

    def write_all(self, view: memoryview, offset: int) -> None:
        """Write all bytes of `view`."""
        written = 0
        while written < len(view):
            written += self.write(view[written:], offset + written)

    def truncate(self, size: int) -> None:
        """Set the size of the file: cut it off, or extend it with zeros."""
        self.is_durable = False
        os.ftruncate(self.descriptor, size)

    def cut(self, size: int) -> None:
        """Truncate the file to `size` if it is longer."""
        if self.size() > size:
            self.truncate(size)

    def flush(self) -> None:
        """Make all written bytes durable."""
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
        """Write a range of the file again, unchanged, so that the next flush includes it.

        The bytes come from the page cache or the disk; if they are wrong, the commit fails.
        """
        part = bytearray(end - start)
        if os.preadv(self.descriptor, [part], start) != len(part):
            raise OSError(errno.EIO, "a staged file has become shorter")
        self.write_all(memoryview(part), start)


def read_exactly(descriptor: int, view: memoryview, offset: int) -> bool:
    """Fill `view` from a file; return False if the file is too short."""
    filled = 0
    while filled < len(view):
        count = os.preadv(descriptor, [view[filled:]], offset + filled)
        if not count:
            return False
        filled += count
    return True


_READ_BYTES: Final = 1024 * 1024


class PlainBytes:
    """Writes the bytes of an upload to its file as they arrive. Every method may raise OSError."""

    encoding = PLAIN

    def __init__(self, file: StagedIO) -> None:
        self._file = file
        self._length = file.size()

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self._length

    def has(self, offset: int) -> bool:
        """Return True if `rewind` can go to this offset. Changes nothing."""
        return 0 <= offset <= self._length

    def rewind(self, offset: int) -> bool:
        """Go to an offset that `has` confirmed; return False if there were bytes after it.

        Those bytes may be from a failed flush. Then the block with the last acknowledged bytes may
        be wrong on the disk, although the kernel considers it clean. So that block is written and
        flushed again before the file is truncated.
        """
        if offset == self._length:
            return True
        if offset:
            self._file.rewrite_edge(offset)
            self._file.flush()
        self._file.truncate(offset)
        self._length = offset
        return False

    def append(self, view: memoryview, /) -> None:
        """Append bytes; after an error, `length` shows how many were written."""
        written = 0
        while written < view.nbytes:
            count = self._file.write(view[written:], self._length)
            self._length += count
            written += count

    def settle(self) -> None:
        """Do nothing: plain bytes are written at once, and never pending."""

    def finish(self) -> None:
        """Do nothing: a plain object ends with its last byte."""

    def checksum(self) -> None:
        """Return None: only sealed bytes have a checksum (`Stored.checksum`)."""

    def filled(self, length: int) -> None:
        """Set the length after bytes were copied directly into the file."""
        self._length = length
        self._file.is_durable = False

    def hash_into(self, hashers: Mapping[str, Hasher]) -> None:
        """Read all bytes again and hash them."""
        hash_file(self._file.descriptor, self._length, hashers)

    def mark(self, acknowledged: int) -> None:
        """Make the file longer than `acknowledged`, so that `rewind` finds bytes after that."""
        if self._length <= acknowledged:
            self._file.truncate(acknowledged + 1)

    def close(self) -> None:
        """Do nothing: there are no hash states to cache."""


def hash_file(descriptor: int, size: int, hashers: Mapping[str, Hasher]) -> None:
    """Hash the first `size` bytes of a file with all `hashers`."""
    buffer = memoryview(bytearray(min(size, _READ_BYTES)))
    os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_SEQUENTIAL)
    offset = 0
    while offset < size:
        count = os.preadv(descriptor, [buffer[: size - offset]], offset)
        if count == 0:
            raise OSError(errno.EIO, "a staged file is shorter than what was written to it")
        for hasher in hashers.values():
            hasher.update(buffer[:count])
        offset += count
