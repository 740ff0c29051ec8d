"""A sealed object, open for reading: its frames are decrypted as they are read.

It reads the stored bytes of any store (`StoredBytes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from registry.blobstore.base import DataKey, ObjectChanged, ObjectDamaged
from registry.blobstore.blocking import BlockingObject
from registry.blobstore.sealed_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    FrameCipher,
    FrameKind,
    SealBroken,
    frame_offset,
    unsealed_size,
)
from registry.blobstore.sealed_frames import scratch
from registry.blobstore.staging import check_size, checked_range
from registry.errors import StoreUnavailable


class StoredBytes(BlockingObject, Protocol):
    """The bytes of an object as they are stored."""

    def read_into(self, view: memoryview, offset: int, *, wait: bool = True) -> bool:
        """Fill `view`; return False if the bytes end before, or without `wait`, if it may block.

        Raises:
            StoreUnavailable: reading failed.

        """
        ...

    def expect(self, offset: int, count: int) -> None:
        """Prepare to read a large range in order."""
        ...


class SealedObject(BlockingObject):
    """A sealed object over its stored bytes."""

    __slots__ = ("_cipher", "_length", "_stored")

    def __init__(self, stored: StoredBytes, cipher: FrameCipher, length: int) -> None:
        self._stored = stored
        self._cipher = cipher
        self._length = length

    @property
    def length(self) -> int:
        """Return the number of bytes, unsealed."""
        return self._length

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may block."""
        return self._stored.closes_slowly

    def file_region(self, start: int = 0, stop: int | None = None) -> None:
        """Return None: what is stored are other bytes."""
        checked_range(start, stop, self._length)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range in order, in parts of at most 1 MiB; only its frames are decrypted.

        No byte of a frame is given before its tag is checked. If the range reaches the end of the
        object, an empty last frame is checked first: without it, the object was cut off.

        Raises:
            ObjectChanged: a frame does not open.
            StoreUnavailable: reading failed.

        """
        return self._read(*checked_range(start, stop, self._length))

    def _read(self, offset: int, end: int) -> Iterator[memoryview]:
        plain = memoryview(bytearray(min(self._length, FRAME_BYTES)))
        first, last = frame_offset(offset // FRAME_BYTES), frame_offset(-(-end // FRAME_BYTES))
        self._stored.expect(first, last - first)
        if end == self._length and not end % FRAME_BYTES:
            self._checked(end // FRAME_BYTES, plain)
        while offset < end:
            number, skipped = divmod(offset, FRAME_BYTES)
            frame = self._checked(number, plain)
            view = frame[skipped : skipped + end - offset]
            offset += len(view)
            yield view

    def check_end(self) -> None:
        """Check the last frame, which tells the size.

        Raises:
            SealBroken: the object was cut off, or its end was changed.
            StoreUnavailable: reading failed.

        """
        number, rest = divmod(self._length, FRAME_BYTES)
        self._frame(number, memoryview(bytearray(rest)))

    def _checked(self, number: int, plain: memoryview) -> memoryview:
        try:
            return self._frame(number, plain)
        except SealBroken as error:
            raise ObjectChanged("a stored object is damaged") from error

    def _frame(self, number: int, plain: memoryview) -> memoryview:
        """Return the bytes of a frame, decrypted into `plain`."""
        last, rest = divmod(self._length, FRAME_BYTES)
        kind, size = (FrameKind.LAST, rest) if number == last else (FrameKind.WHOLE, FRAME_BYTES)
        stored = scratch()[: size + OVERHEAD]
        if not self._stored.read_into(stored, frame_offset(number)):
            raise StoreUnavailable("a stored object is shorter than it was")
        return self._cipher.open(kind, number, stored, plain)

    def close(self) -> None:
        """Release the object; calling it again does nothing."""
        self._stored.close()


def unseal(
    stored: StoredBytes, object_id: str, size: int | None, data_key: DataKey
) -> SealedObject:
    """Return the sealed object of `size` bytes that is stored so; on an error, close it.

    Without a size, the last frame is checked, since the number of stored bytes may be wrong.

    Raises:
        ObjectDamaged: it has another size, or was not sealed with this key for this object.
        StoreUnavailable: the store failed.

    """
    header = bytearray(HEADER_BYTES)
    with _closing_on_error(stored):
        stored.read_into(memoryview(header), 0)
        found = _unsealed(stored, header, object_id, size, data_key)
        if size is None:
            found.check_end()
    return found


def unseal_cached(
    stored: StoredBytes, object_id: str, size: int | None, data_key: DataKey
) -> SealedObject | None:
    """Do as `unseal`, or return None and close it if that might wait for the disk."""
    header = bytearray(HEADER_BYTES)
    with _closing_on_error(stored):
        if size is not None and stored.read_into(memoryview(header), 0, wait=False):
            return _unsealed(stored, header, object_id, size, data_key)
    stored.close()
    return None


def _unsealed(
    stored: StoredBytes, header: bytearray, object_id: str, size: int | None, data_key: DataKey
) -> SealedObject:
    length = unsealed_size(stored.length)
    check_size(length, size)
    return SealedObject(stored, FrameCipher.of_header(bytes(header), data_key, object_id), length)


@contextmanager
def _closing_on_error(stored: StoredBytes) -> Iterator[None]:
    """Close the object if the block raises; raise ObjectDamaged for SealBroken."""
    try:
        yield
    except SealBroken as error:
        stored.close()
        raise ObjectDamaged(str(error)) from error
    except BaseException:
        stored.close()
        raise
