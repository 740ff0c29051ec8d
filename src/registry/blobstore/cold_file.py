"""Read a stored file from its disk, past the page cache (``O_DIRECT``)."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from registry.blobstore.blocking import BlockingObject
from registry.blobstore.disk_io import disk_errors
from registry.blobstore.staging import checked_range
from registry.blobstore.stored_file import StoredFile
from registry.errors import StoreUnavailable

_BUFFER_BYTES: Final = 1024 * 1024
_BLOCK_BYTES: Final = 4096
"""Where a direct read begins and ends: at a multiple of this, on every usual disk."""


class ColdFile(BlockingObject):
    """The bytes of a stored file as they lie on the disk, whatever their encoding.

    A page in memory may be whole while its block on the disk is not; and what is read only once
    would displace what pulls need. So they are read past the page cache. If the file system cannot
    do that, they are read through it, and dropped from it afterwards.
    """

    __slots__ = ("_file",)

    def __init__(self, file: StoredFile) -> None:
        """Read `file`, and close it at the end."""
        self._file = file

    @property
    def length(self) -> int:
        """Return the number of stored bytes."""
        return self._file.length

    @property
    def closes_slowly(self) -> bool:
        """Return True if closing frees the blocks of a large file."""
        return self._file.closes_slowly

    def file_region(self, start: int = 0, stop: int | None = None) -> None:
        """Return None, as ``sendfile`` would read through the page cache."""
        checked_range(start, stop, self.length)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range in order through one buffer of 1 MiB.

        Raises:
            StoreUnavailable: reading failed, or the file has become shorter.

        """
        return self._read(*checked_range(start, stop, self.length))

    def _read(self, start: int, end: int) -> Iterator[memoryview]:
        if start == end:
            return
        size = min(end - start // _BLOCK_BYTES * _BLOCK_BYTES, _BUFFER_BYTES)
        room = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        with mmap.mmap(-1, room) as aligned, memoryview(aligned) as buffer:
            is_direct = _set_direct(self._descriptor(), is_direct=True)
            offset = start
            while offset < end:
                block = offset // _BLOCK_BYTES * _BLOCK_BYTES
                with disk_errors():
                    try:
                        read = os.preadv(self._descriptor(), [buffer], block)
                    except OSError as error:
                        if not is_direct or error.errno != errno.EINVAL:
                            raise
                        is_direct = _set_direct(self._descriptor(), is_direct=False)
                        continue
                if block + read <= offset:
                    raise StoreUnavailable("a stored object is shorter than it was")
                limit = min(block + read, end)
                with buffer[offset - block : limit - block] as chunk:
                    yield chunk
                offset = limit
                if not is_direct:
                    os.posix_fadvise(self._descriptor(), block, read, os.POSIX_FADV_DONTNEED)

    def _descriptor(self) -> int:
        """Return the descriptor; raise ValueError once the file is closed."""
        return self._file.file_region(0, 0).descriptor

    def close(self) -> None:
        """Release the file; calling it again does nothing."""
        self._file.close()


def _set_direct(descriptor: int, *, is_direct: bool) -> bool:
    """Let a descriptor read past the page cache, or not; return True if it does."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
    if is_direct:
        with suppress(OSError):  # EINVAL: the file system cannot
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
            return True
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return False
