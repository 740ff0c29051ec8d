"""Encode the bytes of an upload as stored bytes: plain, or sealed frame by frame.

The stored bytes are the same as in a file on disk (`registry.blobstore.sealed.staged`). But no
bytes are overwritten: a partial frame stays in memory, and in the tail.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final, NamedTuple

from blake3 import blake3

from registry.blobstore.base import PLAIN, SEALED, DataKey
from registry.blobstore.s3.bucket_layout import Tail
from registry.blobstore.s3.parts import PartWriter
from registry.blobstore.sealed.compression import is_worth_compressing
from registry.blobstore.sealed.frame_format import FRAME_BYTES, FrameCipher, FrameKind, SealBroken
from registry.blobstore.sealed.frames import open_frame, scratch, seal_frame
from registry.blobstore.sealed.layout import Layout, Packed, Record, Slots, new_layout
from registry.blobstore.sealed.table import big_endian, sealed_table
from registry.oci.digest import Hasher

_PART_BYTES: Final = 256 * 1024


class SealedState(NamedTuple):
    """The fields of a tail that only a sealed upload has."""

    header: bytes | None = None
    entries: bytes = b""
    partial: bytes = b""


class PlainEncoder:
    """Appends the bytes of an upload unchanged to its `PartWriter`.

    Another thread may call `read`.
    """

    encoding = PLAIN

    def __init__(self, writer: PartWriter) -> None:
        self._writer = writer

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self._writer.length

    def restore(self, tail: Tail) -> bool:
        """Continue after a tail, whose stored bytes the writer already has.

        Return False if the tail does not match this upload, or does not decrypt.
        """
        return tail.about.header is None and self._writer.length == tail.about.offset

    def append(self, view: memoryview, /) -> None:
        """Append bytes; raise `StoreUnavailable` or `BlobTooLarge` as `PartWriter.append` does."""
        self._writer.append(view)

    def sealed(self) -> SealedState:
        """Return an empty state."""
        return SealedState()

    def cut(self, offset: int) -> bool:
        """Drop the bytes after `offset`; return False if some of them were already sent."""
        if not self._writer.sent <= offset <= self._writer.length:
            return False
        self._writer.cut(offset)
        return True

    def finish(self) -> None:
        """Do nothing: a plain object ends with its last byte."""

    def checksum(self) -> None:
        """Return None: only sealed bytes have a checksum (`Stored.checksum`)."""

    def hash_into(self, hashers: Mapping[str, Hasher]) -> bool:
        """Hash all bytes; return False, without hashing any, if some are no longer in memory."""
        if self._writer.sent:
            return False
        for start in range(0, self.length, _PART_BYTES):
            part = self._writer.peek(start, min(start + _PART_BYTES, self.length))
            assert part is not None
            for hasher in hashers.values():
                hasher.update(part)
        return True

    def read(self, offset: int, count: int) -> bytes | None:
        """Return up to `count` bytes from `offset`; None if they are no longer in memory."""
        return self._writer.peek(offset, min(offset + count, self.length))


class SealedEncoder:
    """Seals bytes under a data key frame by frame; the partial frame stays in memory."""

    encoding = SEALED

    def __init__(
        self, writer: PartWriter, object_id: str, data_key: DataKey, *, compresses: bool
    ) -> None:
        self._writer = writer
        self._object_id = object_id
        self._data_key = data_key
        self._compresses = compresses
        self._cipher: FrameCipher | None = None
        """None until the first bytes are stored, which decide whether the object is compressed."""
        self._layout: Layout = Slots()
        self._number = 0
        self._buffer = bytearray()
        self.hasher: blake3 | None = blake3()
        """The hasher of the stored bytes; None if no hasher has hashed all of them."""

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self._number * FRAME_BYTES + len(self._buffer)

    def restore(self, tail: Tail) -> bool:
        """See `PlainEncoder.restore`."""
        about = tail.about
        if about.header is None:
            return False
        try:
            self._cipher = FrameCipher.of_header(about.header, self._data_key, self._object_id)
            self._layout = layout_before(self._cipher, about.entries)
            self._number, count = divmod(about.offset, FRAME_BYTES)
            self._buffer[:] = open_partial(self._cipher, self._number, count, tail.partial)
            start = self._layout.start(self._number)
        except (SealBroken, IndexError):
            return False
        self.hasher = None
        return start == self._writer.length

    def append(self, view: memoryview, /) -> None:
        """Append bytes; seal and append each frame that becomes full."""
        while view:
            room = FRAME_BYTES - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            if len(self._buffer) == FRAME_BYTES:
                record = self._store(FrameKind.WHOLE)
                self._layout.add(record)
                self._number += 1  # before the buffer: `read` compares both, in another thread
                self._buffer = bytearray()

    def sealed(self) -> SealedState:
        """Return the header, the entries of packed frames, and the partial frame, sealed."""
        if not self.length:
            return SealedState()
        cipher = self._begun()
        packed = self._layout
        entries = big_endian(packed.entries).tobytes() if isinstance(packed, Packed) else b""
        if not self._buffer:
            return SealedState(cipher.header, entries)
        out = scratch()
        with memoryview(self._buffer) as piece:
            _, length = seal_frame(cipher, FrameKind.PARTIAL, self._number, piece, out)
        return SealedState(cipher.header, entries, bytes(out[:length]))

    def cut(self, offset: int) -> bool:
        """See `PlainEncoder.cut`."""
        number, count = divmod(offset, FRAME_BYTES)
        if not 0 <= offset <= self.length:
            return False
        if number < self._number:
            frame = self._frame(number)
            if frame is None:
                return False
            self._writer.cut(self._layout.start(number))
            self._layout.cut(number)
            self._number, self._buffer, self.hasher = number, bytearray(frame), None
        del self._buffer[count:]
        return True

    def finish(self) -> None:
        """Append the last frame, and the table of a packed object."""
        size = self.length
        record = self._store(FrameKind.LAST)
        packed = self._layout
        if isinstance(packed, Packed):
            assert self._cipher is not None
            packed.add(record)
            self._append(memoryview(sealed_table(self._cipher, packed, size)))

    def checksum(self) -> str | None:
        """Return the BLAKE3 digest of the stored bytes, or None if it is unknown."""
        return None if self.hasher is None else self.hasher.hexdigest()

    def hash_into(self, hashers: Mapping[str, Hasher]) -> bool:
        """See `PlainEncoder.hash_into`."""
        if self._writer.sent:
            return False
        for number in range(self._number):
            frame = self._frame(number)
            assert frame is not None
            for hasher in hashers.values():
                hasher.update(frame)
        for hasher in hashers.values():
            hasher.update(bytes(self._buffer))
        return True

    def read(self, offset: int, count: int) -> bytes | None:
        """See `PlainEncoder.read`."""
        number, skipped = divmod(offset, FRAME_BYTES)
        buffer = self._buffer
        if number == self._number and buffer is self._buffer:  # else the frame is stored by now
            return bytes(buffer[skipped : skipped + count])
        frame = self._frame(number)
        return None if frame is None else frame[skipped : skipped + count]

    def _frame(self, number: int) -> bytes | None:
        """Return the bytes of a full frame; None if its stored bytes are no longer in memory."""
        if self._cipher is None or number >= self._number:
            return None
        record = self._layout.record(number, FRAME_BYTES)
        stored = self._writer.peek(record.start, record.end)
        if stored is None:
            return None
        out = memoryview(bytearray(FRAME_BYTES))
        return bytes(open_frame(self._cipher, number, record, memoryview(stored), out))

    def _store(self, kind: FrameKind) -> Record:
        cipher = self._begun()
        out = scratch()
        with memoryview(self._buffer) as piece:
            kind, length = seal_frame(cipher, kind, self._number, piece, out)
        start = self._layout.start(self._number)
        self._append(out[:length])
        return Record(kind, start, length, len(self._buffer))

    def _begun(self) -> FrameCipher:
        """Return the cipher; the first call decides about compression and appends the header."""
        if self._cipher is None:
            with memoryview(self._buffer) as piece:
                is_packed = self._compresses and is_worth_compressing(piece)
            cipher = FrameCipher.new(self._data_key, self._object_id, is_packed=is_packed)
            self._layout = new_layout(is_packed=is_packed)
            self._append(memoryview(cipher.header))
            self._cipher = cipher
        return self._cipher

    def _append(self, stored: memoryview) -> None:
        self._writer.append(stored)
        if self.hasher is not None:
            self.hasher.update(stored)


Encoder = PlainEncoder | SealedEncoder


def layout_before(cipher: FrameCipher, entries: bytes) -> Layout:
    """Return the layout of the whole frames before the partial frame.

    `entries` are the entries of packed frames in a tail: integers of 4 bytes, big-endian.

    Raise `SealBroken` if the entries are cut off.
    """
    if not cipher.is_packed:
        return Slots()
    found = array("I")
    try:
        found.frombytes(entries)
    except ValueError as error:
        raise SealBroken("the entries of a tail are cut off") from error
    return Packed(big_endian(found))


def open_partial(cipher: FrameCipher, number: int, count: int, sealed: bytes) -> bytes:
    """Decrypt the partial frame in a tail, of `count` bytes.

    Raise `SealBroken` if `sealed` is another frame, or was changed.
    """
    if not count:
        return b""
    record = Record(FrameKind.PARTIAL, 0, len(sealed), count)
    out = memoryview(bytearray(FRAME_BYTES))
    found = open_frame(cipher, number, record, memoryview(sealed), out)
    if len(found) != count:
        raise SealBroken("a partial frame has another length")
    return bytes(found)
