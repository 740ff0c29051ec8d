"""An open object file, ready for ``sendfile`` or to be read through a buffer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from registry.blobstore.base import FileRegion, ObjectUnknown, StoredRange
from registry.blobstore.medium import medium_errors, unavailable
from registry.blobstore.staging import check_size, checked_range
from registry.errors import StoreUnavailable

_READ_BYTES: Final = 256 * 1024
_SEQUENTIAL_BYTES: Final = 1024 * 1024
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW
_NOATIME: Final = getattr(os, "O_NOATIME", 0)


class StoredFile(StoredRange):
    """A part of an object's file. It stays readable after the object is deleted.

    There is no finalizer on purpose: a descriptor closed by the garbage collector while
    ``sendfile`` runs could be another object's by the next call.
    """

    def __init__(self, descriptor: int, offset: int, count: int) -> None:
        self._region = FileRegion(descriptor, offset, count)
        self._is_open = True

    @property
    def file_region(self) -> FileRegion | None:
        """Return where the bytes lie in the file."""
        return self._region

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes in order through one buffer of 256 KiB.

        Raises:
            StoreUnavailable: reading failed, or the file has become shorter.

        """
        descriptor, offset, count = self._region
        buffer = memoryview(bytearray(min(count, _READ_BYTES)))
        end = offset + count
        while offset < end:
            if not self._is_open:  # the descriptor may be another file's by now
                raise ValueError("the stored object was closed")
            with medium_errors():
                read = os.preadv(descriptor, [buffer[: end - offset]], offset)
            if read == 0:
                raise StoreUnavailable("a stored object is shorter than it was")
            yield buffer[:read]
            offset += read

    def close(self) -> None:
        """Release the file; calling it again does nothing."""
        if self._is_open:
            self._is_open = False
            os.close(self._region.descriptor)


def open_stored(
    folder: int, path: str, start: int, stop: int | None, size: int | None = None
) -> StoredFile:
    """Open bytes ``[start, stop)`` of the file `path` below a folder descriptor.

    Raises:
        ObjectUnknown: there is no such file.
        ObjectDamaged: the file has another size.
        StoreUnavailable: the medium refused, or the file ends before the bytes asked for.
        ValueError: the range is negative.

    """
    try:
        descriptor = _open_quietly(folder, path)
    except FileNotFoundError as error:
        raise ObjectUnknown(path) from error
    except OSError as error:
        raise unavailable(error) from error
    try:
        with medium_errors():
            there = os.fstat(descriptor).st_size
            check_size(there, size)
            start, end = checked_range(start, stop, there)
            if end - start >= _SEQUENTIAL_BYTES:
                os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_SEQUENTIAL)
    except BaseException:
        os.close(descriptor)
        raise
    return StoredFile(descriptor, start, end - start)


def check_stored(folder: int, path: str, size: int) -> None:
    """Check that the file `path` below a folder descriptor is there with `size` bytes.

    Raises:
        ObjectUnknown, ObjectDamaged, StoreUnavailable: as `open_stored`.

    """
    try:
        there = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError as error:
        raise ObjectUnknown(path) from error
    except OSError as error:
        raise unavailable(error) from error
    check_size(there.st_size, size)


def _open_quietly(folder: int, path: str) -> int:
    """Open for reading without a write to the inode; only the file's owner may ask for that."""
    try:
        return os.open(path, _FLAGS | _NOATIME, dir_fd=folder)
    except PermissionError:
        return os.open(path, _FLAGS, dir_fd=folder)
