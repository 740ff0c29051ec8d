"""A sealed object, open for reading: frames are decrypted when they are read.

The stored bytes may come from any store (`StoredBytes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from registry.blobstore.base import DataKey, ObjectChanged, ObjectDamaged
from registry.blobstore.reading import BlockingObject, StoredBytes
from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    FrameCipher,
    SealBroken,
    says_packed,
    unsealed_size,
)
from registry.blobstore.sealed.frames import open_frame, scratch
from registry.blobstore.sealed.layout import Layout, Slots
from registry.blobstore.sealed.shared_frames import SharedFrames
from registry.blobstore.sealed.table import read_table
from registry.blobstore.staging import check_size, checked_range
from registry.errors import StoreUnavailable


class SealedObject(BlockingObject):
    """A sealed object, decrypted from its stored bytes."""

    __slots__ = ("_cipher", "_frames", "_layout", "_stored", "length")

    def __init__(
        self,
        stored: StoredBytes,
        cipher: FrameCipher,
        layout: Layout,
        length: int,
        frames: SharedFrames | None,
    ) -> None:
        self._stored = stored
        self._cipher = cipher
        self._layout = layout
        self.length = length
        self._frames = frames

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may block."""
        return self._stored.closes_slowly

    def shared_chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range as `chunks` does, sharing decrypted frames with other readers."""
        offset, end = checked_range(start, stop, self.length)
        if self._frames is None:
            return self._read(offset, end)
        return self._read_shared(self._frames, offset, end)

    def _read(self, offset: int, end: int) -> Iterator[memoryview]:
        """Yield a range in parts of at most 1 MiB, decrypting only the frames in the range.

        No byte of a frame is yielded before its tag is checked. If the range reaches the end of the
        object, an empty last frame is checked first: without it, the object was cut off.

        Raise `ObjectChanged` if a frame does not decrypt, `StoreUnavailable` if reading failed.
        """
        plain = memoryview(bytearray(min(self.length, FRAME_BYTES)))
        self._begin(offset, end)
        while offset < end:
            number, skipped = divmod(offset, FRAME_BYTES)
            frame = self._checked(number, plain)
            view = frame[skipped : skipped + end - offset]
            offset += len(view)
            yield view

    def _read_shared(self, frames: SharedFrames, offset: int, end: int) -> Iterator[memoryview]:
        self._begin(offset, end)
        first, behind = offset // FRAME_BYTES, -(-end // FRAME_BYTES)
        with frames.reading(self._cipher.header, first, behind) as reader:
            while offset < end:
                number, skipped = divmod(offset, FRAME_BYTES)
                frame = reader.frame(number, self._checked)
                view = frame[skipped : skipped + end - offset]
                offset += len(view)
                yield view

    def _begin(self, offset: int, end: int) -> None:
        """Prepare to read a range; if the range reaches an empty last frame, check that frame."""
        first = self._layout.start(offset // FRAME_BYTES)
        self._stored.expect(first, self._layout.start(-(-end // FRAME_BYTES)) - first)
        if end == self.length and not end % FRAME_BYTES:
            self._checked(end // FRAME_BYTES, memoryview(bytearray()))

    def check_end(self) -> None:
        """Check the last frame, which proves the object's size.

        Raise `SealBroken` if the object was cut off, or its end was changed; `StoreUnavailable` if
        reading failed.
        """
        number, rest = divmod(self.length, FRAME_BYTES)
        self._frame(number, memoryview(bytearray(rest)))

    def _checked(self, number: int, plain: memoryview) -> memoryview:
        try:
            return self._frame(number, plain)
        except SealBroken as error:
            raise ObjectChanged("a stored object is damaged") from error

    def _frame(self, number: int, plain: memoryview) -> memoryview:
        """Return the bytes of a frame, decrypted into `plain`."""
        last, rest = divmod(self.length, FRAME_BYTES)
        record = self._layout.record(number, rest if number == last else FRAME_BYTES)
        stored = scratch()[: record.stored]
        if not self._stored.read_into(stored, record.start):
            raise StoreUnavailable("a stored object is shorter than it was")
        found = open_frame(self._cipher, number, record, stored, plain)
        if len(found) != record.length:
            raise SealBroken(f"frame {number} has another length")
        return found

    def close(self) -> None:
        """Release the object; calling it again does nothing."""
        self._stored.close()


def unseal(
    stored: StoredBytes,
    object_id: str,
    size: int | None,
    data_key: DataKey,
    frames: SharedFrames | None = None,
) -> SealedObject:
    """Return an object of `size` bytes that decrypts `stored`; on an error, close `stored`.

    If `size` is None, check the last frame, which alone proves the size. Readers of `shared_chunks`
    share decrypted frames in `frames`.

    Raise `ObjectDamaged` if the object has another size, or was not sealed with this key for this
    object; `StoreUnavailable` if the store failed.
    """
    with _closing_on_error(stored):
        found = _unsealed(stored, object_id, size, data_key, frames, wait=True)
        if found is None:
            raise SealBroken("there are fewer bytes")
        if size is None:
            found.check_end()
    return found


def unseal_cached(
    stored: StoredBytes,
    object_id: str,
    size: int | None,
    data_key: DataKey,
    frames: SharedFrames | None,
) -> SealedObject | None:
    """Like `unseal`, but close `stored` and return None if that might wait for the disk."""
    if size is not None:
        with _closing_on_error(stored):
            found = _unsealed(stored, object_id, size, data_key, frames, wait=False)
        if found is not None:
            return found
    stored.close()
    return None


def _unsealed(
    stored: StoredBytes,
    object_id: str,
    size: int | None,
    data_key: DataKey,
    frames: SharedFrames | None,
    *,
    wait: bool,
) -> SealedObject | None:
    """Return the object; None if bytes are missing or, without `wait`, if it might block."""

    def read(view: memoryview, offset: int) -> bool:
        return stored.read_into(view, offset, wait=wait)

    header = bytearray(HEADER_BYTES)
    if not read(memoryview(header), 0):
        return None
    is_packed = says_packed(header)
    if not is_packed:
        length = unsealed_size(stored.length)
        check_size(length, size)
    cipher = FrameCipher.of_header(bytes(header), data_key, object_id)
    if not is_packed:
        return SealedObject(stored, cipher, Slots(), length, frames)
    found = read_table(cipher, stored.length, size, read, wait=wait)
    return None if found is None else SealedObject(stored, cipher, *found, frames)


@contextmanager
def _closing_on_error(stored: StoredBytes) -> Iterator[None]:
    """Close `stored` if the block raises; turn `SealBroken` into `ObjectDamaged`."""
    try:
        yield
    except SealBroken as error:
        stored.close()
        raise ObjectDamaged(str(error)) from error
    except BaseException:
        stored.close()
        raise
