"""An object's open file, read by ``sendfile``, through a buffer, or bypassing the page cache."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from cloudcore.serving.asgi import FileRegion
from registry.blobstore.base import ObjectDamaged, ObjectUnknown
from registry.blobstore.disk import disk_io
from registry.blobstore.disk.disk_io import disk_errors, unavailable
from registry.blobstore.reading import BlockingObject, StoredBytes
from registry.blobstore.staged_io import read_exactly
from registry.blobstore.staging import check_size, checked_range
from registry.errors import StoreUnavailable

_READ_BYTES: Final = 256 * 1024
_SEQUENTIAL_BYTES: Final = 1024 * 1024
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOATIME: Final = getattr(os, "O_NOATIME", 0)
_READ: Final = disk_io.how(_FLAGS | _NOATIME)
_LOOK: Final = disk_io.how(os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)


class StoredFile(StoredBytes):
    """An object's file. It stays readable after the object is deleted.

    It has no finalizer: if Python's garbage collector closed the descriptor during a ``sendfile``,
    the next call could send another file that got the same number.
    """

    __slots__ = ("_descriptor", "_is_open", "length")

    def __init__(self, descriptor: int, length: int) -> None:
        self._descriptor = descriptor
        self.length = length
        self._is_open = True

    @property
    def closes_slowly(self) -> bool:
        """Return True if the file is large and already deleted: closing then frees its blocks."""
        return (
            self.length >= _SEQUENTIAL_BYTES
            and self._is_open
            and os.fstat(self._descriptor).st_nlink == 0
        )

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion:
        """Return a range as a region of the file."""
        self._check_open()
        start, end = checked_range(start, stop, self.length)
        self.expect(start, end - start)
        return FileRegion(self._descriptor, start, end - start)

    def _read(self, offset: int, end: int) -> Iterator[memoryview]:
        """Yield a range through one buffer of 256 KiB.

        Raise `StoreUnavailable` if reading failed, or the file has become shorter.
        """
        buffer = memoryview(bytearray(min(end - offset, _READ_BYTES)))
        self.expect(offset, end - offset)
        while offset < end:
            self._check_open()
            with disk_errors():
                read = os.preadv(self._descriptor, [buffer[: end - offset]], offset)
            if read == 0:
                raise StoreUnavailable("a stored object is shorter than it was")
            yield buffer[:read]
            offset += read

    def read_into(self, view: memoryview, offset: int, *, wait: bool = True) -> bool:
        """Fill `view` from the file (`StoredBytes`)."""
        self._check_open()
        if wait:
            with disk_errors():
                return read_exactly(self._descriptor, view, offset)
        try:
            return os.preadv(self._descriptor, [view], offset, os.RWF_NOWAIT) == len(view)
        except OSError:  # not in the kernel's memory, or not supported by the file system
            return False

    def expect(self, offset: int, count: int) -> None:
        """Tell the kernel that a large range will be read in order."""
        if count >= _SEQUENTIAL_BYTES:
            self._check_open()
            os.posix_fadvise(self._descriptor, offset, count, os.POSIX_FADV_SEQUENTIAL)

    def _check_open(self) -> None:
        if not self._is_open:  # another file may have the descriptor's number
            raise ValueError("the stored object was closed")

    def close(self) -> None:
        """Release the file; calling it again does nothing."""
        if self._is_open:
            self._is_open = False
            os.close(self._descriptor)


def open_stored(folder: int, path: str, size: int | None = None) -> StoredFile:
    """Open the file `path` below a folder descriptor; `size` None accepts any size.

    Raises:
        ObjectUnknown: there is no such file.
        ObjectDamaged: the file has another size.
        StoreUnavailable: the disk failed.

    """
    try:
        descriptor = _open_quietly(folder, path)
    except FileNotFoundError as error:
        raise ObjectUnknown(path) from error
    except OSError as error:
        raise unavailable(error) from error
    return _opened(descriptor, size)


def open_cached(folder: int, path: str, size: int | None = None) -> StoredFile | None:
    """Open a file as `open_stored` does; return None if that might wait for the disk.

    Raise `ObjectDamaged` or `StoreUnavailable` as `open_stored` does.
    """
    descriptor = disk_io.open_cached(folder, path, _READ)
    return None if descriptor is None else _opened(descriptor, size)


def _opened(descriptor: int, size: int | None) -> StoredFile:
    try:
        there = os.fstat(descriptor).st_size
        check_size(there, size)
    except OSError as error:
        os.close(descriptor)
        raise unavailable(error) from error
    except ObjectDamaged:
        os.close(descriptor)
        raise
    return StoredFile(descriptor, there)


def check_stored(folder: int, path: str, size: int) -> None:
    """Check that the file `path` below a folder descriptor exists with `size` bytes.

    Raise `ObjectUnknown`, `ObjectDamaged` or `StoreUnavailable` as `open_stored` does.
    """
    try:
        there = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError as error:
        raise ObjectUnknown(path) from error
    except OSError as error:
        raise unavailable(error) from error
    check_size(there.st_size, size)


def check_cached(folder: int, path: str, size: int) -> bool:
    """Return True if `check_stored` would succeed without waiting for the disk."""
    descriptor = disk_io.open_cached(folder, path, _LOOK)
    if descriptor is None:
        return False
    try:
        return os.fstat(descriptor).st_size == size
    except OSError:
        return False  # `check_stored` raises the error
    finally:
        os.close(descriptor)


def _open_quietly(folder: int, path: str) -> int:
    """Open for reading, if possible without updating the access time (only the owner may)."""
    try:
        return os.open(path, _FLAGS | _NOATIME, dir_fd=folder)
    except PermissionError:
        return os.open(path, _FLAGS, dir_fd=folder)


_BUFFER_BYTES: Final = 1024 * 1024
_BLOCK_BYTES: Final = 4096
"""Direct reads begin and end at a multiple of this, which suits every usual disk."""


class ColdFile(BlockingObject):
    """A stored file whose stored bytes are read from the disk, bypassing the page cache.

    A page in memory may be intact while its block on the disk is damaged; and bytes that are read
    only once would displace bytes that pulls need. If the file system does not support such reads,
    pages are dropped from the cache afterwards.
    """

    __slots__ = ("_file", "length")

    def __init__(self, file: StoredFile) -> None:
        """Read `file`; `close` closes it."""
        self._file = file
        self.length = file.length

    @property
    def closes_slowly(self) -> bool:
        """Return True if closing frees the blocks of a large file."""
        return self._file.closes_slowly

    def _read(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield a range through one buffer of 1 MiB; raise the errors of `StoredFile`."""
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
    """Turn reading past the page cache on or off; return True if it is now on."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
    if is_direct:
        with suppress(OSError):  # EINVAL: the file system cannot
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
            return True
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return False
