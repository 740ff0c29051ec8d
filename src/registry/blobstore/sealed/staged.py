"""Staged bytes that are sealed as they arrive, frame by frame."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final, NamedTuple

from blake3 import blake3

from registry.blobstore.base import SEALED, DataKey, ObjectDamaged
from registry.blobstore.sealed.compression import is_worth_compressing
from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    TAG_BYTES,
    FrameCipher,
    FrameKind,
    SealBroken,
)
from registry.blobstore.sealed.frames import (
    find_record,
    read_cipher,
    read_frame,
    read_layout,
    scratch,
    seal_frame,
)
from registry.blobstore.sealed.layout import (
    Layout,
    Packed,
    Record,
    Slots,
    marked_size,
    new_layout,
    partial,
)
from registry.blobstore.sealed.table import read_table, sealed_table
from registry.blobstore.staged_io import StagedIO, hash_file, read_exactly
from registry.blobstore.staging import UploadCache
from registry.oci.digest import Hasher

_SMALL_BYTES: Final = 64 * 1024
"""Up to this many bytes of a frame, the buffer has just their size: most objects are small."""


class RunningChecksum(NamedTuple):
    """The BLAKE3 hasher of all stored bytes before frame `number`, the last of which are `tag`.

    Cached between two requests. If another process has rewritten frames since, the tag differs,
    because every write has a new nonce.
    """

    hasher: blake3
    number: int
    tag: bytes
    layout: Layout
    """The layout of the frames before `number`."""


class SealedBytes:
    """Seals bytes under a data key as they are appended.

    The bytes of the partial frame are in memory. `_kept` is their record in the file, once a flush
    has made it durable; the bytes in it may have been acknowledged. A second flush by the same
    writer assumes that the first was acknowledged.
    """

    encoding = SEALED

    def __init__(
        self,
        file: StagedIO,
        upload_id: str,
        data_key: DataKey,
        checksums: UploadCache[RunningChecksum],
        *,
        compresses: bool,
    ) -> None:
        self._file = file
        self._upload_id = upload_id
        self._data_key = data_key
        self._checksums = checksums
        self._compresses = compresses
        self._cipher: FrameCipher | None = None
        """None until the first bytes are stored, which decide whether the object is compressed."""
        self._layout: Layout = Slots()
        """The positions of the frames before `_number`."""
        self._is_open = False
        self._number = 0
        self._count = 0
        self._buffer = bytearray()
        self._kept: Record | None = None
        self._is_pinned = False
        """The frame before `_number` was stored, but its earlier record may be needed until the
        frame is durable."""
        self._hasher: blake3 | None = None
        self._running: RunningChecksum | None = None
        self._found: tuple[int, Record | None] = (0, None)

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self._number * FRAME_BYTES + self._count

    def has(self, offset: int) -> bool:
        """Return True if there are at least `offset` bytes.

        Decrypt the frame in which these bytes end, unless it is in memory. The first call also
        checks the key against the header.
        """
        if offset <= 0:
            return offset == 0
        number, count = divmod(offset, FRAME_BYTES)
        if not self._is_open:
            if not self._open(number):
                return False
        elif offset > self.length or number == self._number:
            return offset <= self.length
        assert self._cipher is not None
        self._make_room(FRAME_BYTES if count else 0)
        with memoryview(self._buffer) as out:
            record = find_record(
                self._file.descriptor, self._cipher, self._layout, number, count, out
            )
        self._found = (offset, record)
        return record is not None or (not count and self._file.size() >= self._layout.start(number))

    def _open(self, number: int) -> bool:
        """Read the header and the layout of the frames before `number`.

        Return False if the key is not the header's, or frames are missing; decrypt no frame.
        """
        try:
            self._cipher = read_cipher(self._file.descriptor, self._data_key, self._upload_id)
        except SealBroken:
            return False
        running = self._checksums.take(self._upload_id)
        if (
            running
            and running.number == number
            and running.tag == self._tag(running.layout, number)
        ):
            self._running, self._layout = running, running.layout
        else:
            is_packed = self._cipher.is_packed
            self._layout = read_layout(self._file.descriptor, number, is_packed=is_packed)
        self._is_open = self._layout.before(self._file.size()) >= number
        return self._is_open

    def rewind(self, offset: int) -> bool:
        """See `PlainBytes.rewind`."""
        number, self._count = divmod(offset, FRAME_BYTES)
        if offset == 0:
            return self._begin()
        if self._found[0] == offset:
            record, self._found = self._found[1], (0, None)
            return self._go_to_stored(number, record)
        if self._kept is None or self._kept.length != self._count:
            self._unpin()
            self._kept = None
            self._file.cut(self._layout.start(number))
        return False

    def append(self, view: memoryview, /) -> None:
        """Append bytes; seal and write each frame that becomes full."""
        while view:
            end = min(FRAME_BYTES, self._count + len(view))
            taken = end - self._count
            self._make_room(end)
            self._buffer[self._count : end] = view[:taken]
            if end == FRAME_BYTES:
                self._store_whole()
            else:
                self._count = end
            view = view[taken:]

    def settle(self) -> None:
        """Write the partial frame to the file, so that a flush makes it durable."""
        kept = self._kept
        if kept is not None and kept.length == self._count:
            return
        if not self._count and (self._is_pinned or not self._number):
            return
        self._unpin()
        if kept is None or not kept.length:
            self._store_last()
            if self._count:  # else the next writer could not tell the table from bytes to cut off
                self._store_table()
            return
        if kept.is_last:
            self._mark(kept.length)
        is_first = kept.start == self._partial(1, kept.length).start
        self._store_partial(2 if is_first else 1, self._count)

    def finish(self) -> None:
        """Write the end of the file: the last frame in its place, and a packed object's table.

        The table overwrites nothing that is needed: the last frame before it has all bytes. If an
        earlier process wrote both and died before the flush, nothing is left to write here. So the
        file always counts as not durable.
        """
        kept = self._kept
        if kept is None or not kept.is_last or kept.length != self._count:
            self._finish_frame()
        self._file.is_durable = False
        self._store_table()

    def _finish_frame(self) -> None:
        """Store the last frame, as the end of the file."""
        self._unpin()
        self._keep_apart()
        is_covered = self._kept is not None and self._kept.length > 0
        self._store_last()
        if is_covered:
            self._file.flush()
        assert self._kept is not None
        self._file.cut(self._kept.end)

    def _store_table(self) -> None:
        """Store the table of a packed object after the last frame, as the end of the file."""
        packed, kept = self._layout, self._kept
        if not isinstance(packed, Packed):
            return
        assert self._cipher is not None
        assert kept is not None
        packed.add(kept)
        try:
            if self._has_table(self._cipher, packed):
                return
            table = memoryview(sealed_table(self._cipher, packed, self.length))
        finally:
            packed.cut(self._number)
        self._file.write_all(table, kept.end)
        self._file.cut(kept.end + len(table))

    def _has_table(self, cipher: FrameCipher, packed: Packed) -> bool:
        """Return True if the file already has the table of these frames."""

        def read(view: memoryview, offset: int) -> bool:
            return read_exactly(self._file.descriptor, view, offset)

        try:
            found = read_table(cipher, self._file.size(), self.length, read)
        except (ObjectDamaged, SealBroken):
            return False
        return found is not None and found[0].entries == packed.entries

    def checksum(self) -> str:
        """Return the BLAKE3 digest of the file in hex; read only the file's end if possible."""
        size = self._file.size()
        if self._hasher is None:
            hasher = blake3()
            hash_file(self._file.descriptor, size, {"blake3": hasher})
            return hasher.hexdigest()
        hasher = self._hasher.copy()
        offset = self._layout.start(self._number)
        while offset < size:
            part = scratch()[: size - offset]
            if not read_exactly(self._file.descriptor, part, offset):
                raise OSError(errno.EIO, "a staged file has become shorter")
            hasher.update(part)
            offset += len(part)
        return hasher.hexdigest()

    def hash_into(self, hashers: Mapping[str, Hasher]) -> None:
        """See `PlainBytes.hash_into`."""
        out = memoryview(bytearray(FRAME_BYTES if self._number else 0))
        for number in range(self._number):
            assert self._cipher is not None
            try:
                record = self._layout.record(number, FRAME_BYTES)
                found = read_frame(self._file.descriptor, self._cipher, number, record, out)
            except SealBroken as error:
                raise OSError(errno.EIO, str(error)) from error
            for hasher in hashers.values():
                hasher.update(found)
        with memoryview(self._buffer) as rest:
            for hasher in hashers.values():
                hasher.update(rest[: self._count])

    def mark(self, acknowledged: int) -> None:
        """See `PlainBytes.mark`."""
        number, count = divmod(acknowledged, FRAME_BYTES)
        size = self._file.size()
        if _is_clean(self._layout, size, number, count):
            last = size - self._layout.start(number) - OVERHEAD
            tells_length = isinstance(self._layout, Slots) and 0 <= last < FRAME_BYTES
            length = last if tells_length else FRAME_BYTES
            self._file.truncate(marked_size(self._layout, number, length))

    def close(self) -> None:
        """Cache the running checksum for the next request in this process."""
        if self._hasher is None or not self._number:
            return
        tag = self._tag(self._layout, self._number)
        if tag is not None:
            running = RunningChecksum(self._hasher, self._number, tag, self._layout)
            self._checksums.put(self._upload_id, running)

    def _begin(self) -> bool:
        """Begin with no bytes; return False if the file had some."""
        is_empty = not self._file.size()
        if not is_empty:
            self._file.truncate(0)
        self._cipher = None
        self._layout = Slots()
        self._is_open = True
        self._number = self._count = 0
        self._kept = None
        self._is_pinned = False
        self._running = self._hasher = None
        return is_empty

    def _go_to_stored(self, number: int, record: Record | None) -> bool:
        """Continue from a record that was read; move it if the next write would overwrite it.

        Return False if there were bytes after the record (`PlainBytes.rewind`).
        """
        self._number = number
        self._layout.cut(number)
        self._is_pinned = False
        self._kept = record
        self._resume_checksum()
        size = self._file.size()
        start = self._layout.start(number)
        if record is None:
            if size == start:
                return True
            self._file.rewrite_edge(start)
            self._file.flush()
            self._file.truncate(start)
            return False
        is_exact = record.length == self._count
        if is_exact and _is_clean(self._layout, size, number, self._count):
            return True
        self._file.rewrite_edge(start)
        if is_exact and record.kind is FrameKind.PARTIAL:
            self._file.rewrite(record.start, record.end)
            self._file.flush()
        else:
            if record.is_last:
                self._mark(record.length)
            self._store_partial(1, self._count)
            self._file.flush()
        assert self._kept is not None
        self._file.truncate(self._kept.end)
        return False

    def _keep_apart(self) -> None:
        """Move a last frame, which may be acknowledged, so that its place can be overwritten."""
        kept = self._kept
        if kept is None or not kept.is_last or not kept.length:
            return
        self._mark(kept.length)
        self._store_partial(1, kept.length)
        self._file.flush()
        self._file.truncate(self._partial(1, kept.length).end)

    def _mark(self, length: int) -> None:
        """Extend the file to a size that records the length of the last frame, durably.

        Do nothing with packed frames, whose entry has the length.
        """
        if isinstance(self._layout, Packed):
            return
        self._file.truncate(marked_size(self._layout, self._number, length))
        self._file.flush()

    def _unpin(self) -> None:
        """Make the previous frame durable, and cut off what remains of its earlier records."""
        if self._is_pinned:
            self._file.flush()
            self._file.cut(self._layout.start(self._number))
            self._is_pinned = False

    def _store_whole(self) -> None:
        """Write the full frame in memory, and begin the next frame."""
        self._unpin()
        self._keep_apart()
        record, stored = self._store(FrameKind.WHOLE, FRAME_BYTES)
        if self._hasher is not None:
            self._hasher.update(stored)
        self._is_pinned = self._kept is not None and self._kept.length > 0
        self._kept = None
        self._layout.add(record)
        self._number += 1
        self._count = 0

    def _store_last(self) -> None:
        if self._kept is None or not self._kept.length:
            self._file.cut(self._layout.start(self._number))
        self._kept, _ = self._store(FrameKind.LAST, self._count)

    def _store_partial(self, place: int, count: int) -> None:
        start = self._partial(place, count).start
        self._kept, _ = self._store(FrameKind.PARTIAL, count, start)

    def _partial(self, place: int, count: int) -> Record:
        return partial(self._layout, self._number, place, count)

    def _store(
        self, kind: FrameKind, count: int, start: int | None = None
    ) -> tuple[Record, memoryview]:
        """Seal the first `count` bytes in memory and write them, after the header if it is missing.

        `start` is the offset, by default the frame's regular place. Return the record and its
        stored bytes, which are valid until the next call.
        """
        with memoryview(self._buffer) as buffer, buffer[:count] as piece:
            cipher, is_new = self._cipher, self._cipher is None
            if cipher is None:
                cipher = self._begin_file(piece)
            head = HEADER_BYTES if is_new else 0
            out = scratch()
            out[:head] = cipher.header[:head]
            kind, length = seal_frame(cipher, kind, self._number, piece, out[head:])
        where = self._layout.start(self._number) if start is None else start
        self._file.write_all(out[: head + length], where - head)
        self._cipher = cipher
        return Record(kind, where, length, count), out[head : head + length]

    def _begin_file(self, piece: memoryview) -> FrameCipher:
        """Decide about compression from the first bytes; return a cipher with a new header."""
        is_packed = self._compresses and is_worth_compressing(piece)
        self._layout = new_layout(is_packed=is_packed)
        cipher = FrameCipher.new(self._data_key, self._upload_id, is_packed=is_packed)
        self._hasher = blake3(cipher.header)
        return cipher

    def _make_room(self, count: int) -> None:
        if count > len(self._buffer):
            size = FRAME_BYTES if count > _SMALL_BYTES else count
            self._buffer += bytes(size - len(self._buffer))

    def _resume_checksum(self) -> None:
        """Continue the checksum of an earlier request if its frames are unchanged."""
        assert self._cipher is not None
        running, self._running = self._running, None
        if not self._number:
            self._hasher = blake3(self._cipher.header)
        elif running and running.number == self._number:
            self._hasher = running.hasher
        else:
            self._hasher = None

    def _tag(self, layout: Layout, number: int) -> bytes | None:
        """Read the tag of the frame before `number`; return None if the file is too short."""
        tag = bytearray(TAG_BYTES)
        offset = layout.start(number) - TAG_BYTES
        return bytes(tag) if read_exactly(self._file.descriptor, memoryview(tag), offset) else None


def _is_clean(layout: Layout, size: int, number: int, count: int) -> bool:
    """Return True if nothing was written to the file after the acknowledged bytes.

    These end at byte `count` of frame `number`. After their record there may be an earlier record,
    or a mark for an earlier last frame, which are both shorter. After a failed flush the mark is
    longer (`SealedBytes.mark`).
    """
    if not count:
        return size <= layout.start(number) + layout.entry_bytes + OVERHEAD
    is_marked = 0 <= size - marked_size(layout, number, 0) < count
    return is_marked or size <= partial(layout, number, 2, count).end
