"""Staged bytes that are sealed as they arrive, frame by frame (`sealed_frames`)."""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from blake3 import blake3

from registry.blobstore.base import SEALED, DataKey
from registry.blobstore.plain_bytes import StagedBytes, hash_file
from registry.blobstore.sealed_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    TAG_BYTES,
    FrameCipher,
    FrameKind,
    SealBroken,
    frame_offset,
)
from registry.blobstore.sealed_frames import (
    Record,
    find_record,
    marked_size,
    read_cipher,
    read_frame,
    scratch,
)
from registry.blobstore.staged_io import StagedIO, read_exactly
from registry.oci.digest import Hasher

_SMALL_BYTES: Final = 64 * 1024
"""Up to so many bytes of a frame, there is only room for those: most objects are small."""


class _Running(NamedTuple):
    """The BLAKE3 hasher of the stored bytes before frame `number`, whose last are `tag`."""

    hasher: blake3
    number: int
    tag: bytes


class ChecksumCache:
    """A bounded cache of the checksums of sealed uploads between two requests.

    Another process may have rewritten frames since. Their tags differ then, since their nonces do.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._running: OrderedDict[str, _Running] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, upload_id: str) -> _Running | None:
        """Remove and return the checksum of an upload."""
        with self._lock:
            return self._running.pop(upload_id, None)

    def put(self, upload_id: str, running: _Running) -> None:
        """Keep the checksum of an upload; evict the least recently used."""
        with self._lock:
            self._running[upload_id] = running
            self._running.move_to_end(upload_id)
            while len(self._running) > self._capacity:
                self._running.popitem(last=False)


class SealedBytes(StagedBytes):
    """Seal bytes under a data key.

    The bytes of the frame that is not full are in memory. `_kept` is the record that holds those of
    them which a flush has made durable, and may have been acknowledged. A second flush in one hold
    takes the first for acknowledged.
    """

    encoding = SEALED

    def __init__(
        self, file: StagedIO, upload_id: str, data_key: DataKey, checksums: ChecksumCache
    ) -> None:
        self._file = file
        self._upload_id = upload_id
        self._data_key = data_key
        self._checksums = checksums
        self._cipher: FrameCipher | None = None
        self._has_header = False
        self._number = 0
        self._count = 0
        self._buffer = bytearray()
        self._kept: Record | None = None
        self._is_pinned = False
        """The frame before `_number` was stored, but its former record may be needed until that
        is durable."""
        self._hasher: blake3 | None = None
        self._found: tuple[int, Record | None] = (0, None)

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self._number * FRAME_BYTES + self._count

    def has(self, offset: int) -> bool:
        """Read the record that holds the end of the bytes up to `offset`, if there is one.

        In a hold that has not gone to an offset, it also checks the key by the header.
        """
        if offset <= 0:
            return offset == 0
        number, count = divmod(offset, FRAME_BYTES)
        if self._cipher is None:
            try:
                self._cipher = read_cipher(self._file.descriptor, self._data_key, self._upload_id)
            except SealBroken:
                return False
            self._has_header = True
        elif offset > self.length or number == self._number:
            return offset <= self.length
        self._make_room(FRAME_BYTES if count else 0)
        with memoryview(self._buffer) as out:
            record = find_record(self._file.descriptor, self._cipher, number, count, out)
        self._found = (offset, record)
        return record is not None or (not count and self._file.size() >= frame_offset(number))

    def rewind(self, offset: int) -> bool:
        """See `StagedBytes.rewind`."""
        number, self._count = divmod(offset, FRAME_BYTES)
        if offset == 0:
            return self._begin()
        if self._found[0] == offset:
            record, self._found = self._found[1], (0, None)
            return self._go_to_stored(number, record)
        if self._kept is None or self._kept.length != self._count:
            self._unpin()
            self._kept = None
            self._file.cut(frame_offset(number))
        return False

    def begin(self) -> None:
        """Begin with no bytes in a new file."""
        self._cipher = FrameCipher.new(self._data_key, self._upload_id)
        self._has_header = False
        self._number = self._count = 0
        self._kept = None
        self._is_pinned = False
        self._hasher = blake3(self._cipher.header)

    def append(self, view: memoryview, /) -> None:
        """Append bytes; seal and write each frame that they fill."""
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
        """Store the bytes of the frame that is not full, so that a flush makes them durable."""
        kept = self._kept
        if kept is not None and kept.length == self._count:
            return
        if not self._count and (self._is_pinned or not self._number):
            return
        self._unpin()
        if kept is None or not kept.length:
            self._store_last()
            return
        if kept.kind is FrameKind.LAST:
            self._mark(kept.length)
        place = self._number + (2 if kept.place == self._number + 1 else 1)
        self._store_partial(place, self._count)

    def finish(self) -> None:
        """Store the last frame in its place, as the end of the file."""
        kept = self._kept
        if kept is not None and kept.kind is FrameKind.LAST and kept.length == self._count:
            return
        self._unpin()
        self._keep_apart()
        is_covered = self._kept is not None and self._kept.length > 0
        self._store_last()
        if is_covered:
            self._file.flush()
        assert self._kept is not None
        self._file.cut(self._kept.end)

    def checksum(self) -> str:
        """Return the BLAKE3 digest of the file in hex; read only the last frame if possible."""
        assert self._kept is not None
        record = self._kept
        if self._hasher is None:
            hasher = blake3()
            hash_file(self._file.descriptor, record.end, {"blake3": hasher})
            return hasher.hexdigest()
        sealed = scratch()[: record.length + OVERHEAD]
        if not read_exactly(self._file.descriptor, sealed, frame_offset(record.place)):
            raise OSError(errno.EIO, "a staged file has become shorter")
        hasher = self._hasher.copy()
        hasher.update(sealed)
        return hasher.hexdigest()

    def hash_into(self, hashers: Mapping[str, Hasher]) -> None:
        """See `StagedBytes.hash_into`."""
        assert self._cipher is not None
        out = memoryview(bytearray(FRAME_BYTES if self._number else 0))
        for number in range(self._number):
            record = Record(FrameKind.WHOLE, number, FRAME_BYTES)
            try:
                found = read_frame(self._file.descriptor, self._cipher, number, record, out)
            except SealBroken as error:
                raise OSError(errno.EIO, str(error)) from error
            for hasher in hashers.values():
                hasher.update(found)
        with memoryview(self._buffer) as rest:
            for hasher in hashers.values():
                hasher.update(rest[: self._count])

    def mark(self, acknowledged: int) -> None:
        """See `StagedBytes.mark`."""
        number, count = divmod(acknowledged, FRAME_BYTES)
        size = self._file.size()
        if _is_clean(size, number, count):
            last = size - frame_offset(number) - OVERHEAD
            is_last = 0 <= last < FRAME_BYTES
            self._file.truncate(marked_size(number, last if is_last else FRAME_BYTES))

    def close(self) -> None:
        """Keep the running checksum for the next hold of this process."""
        tag = self._tag() if self._hasher is not None and self._number else None
        if tag is not None and self._hasher is not None:
            self._checksums.put(self._upload_id, _Running(self._hasher, self._number, tag))

    def _begin(self) -> bool:
        is_empty = not self._file.size()
        if not is_empty:
            self._file.truncate(0)
        self.begin()
        return is_empty

    def _go_to_stored(self, number: int, record: Record | None) -> bool:
        """Go on from a record that was read; move it if the next write would go over it."""
        self._number = number
        self._is_pinned = False
        self._kept = record
        self._resume_checksum()
        size = self._file.size()
        start = frame_offset(number)
        if record is None:
            if size == start:
                return True
            self._file.rewrite_edge(start)
            self._file.flush()
            self._file.truncate(start)
            return False
        is_exact = record.length == self._count
        if is_exact and _is_clean(size, number, self._count):
            return True
        self._file.rewrite_edge(start)
        if is_exact and record.kind is FrameKind.PARTIAL:
            self._file.rewrite(frame_offset(record.place), record.end)
            self._file.flush()
        else:
            if record.kind is FrameKind.LAST:
                self._file.truncate(marked_size(number, record.length))
                self._file.flush()
            self._store_partial(number + 1, self._count)
            self._file.flush()
        assert self._kept is not None
        self._file.truncate(self._kept.end)
        return False

    def _keep_apart(self) -> None:
        """Move a last frame that may have been acknowledged, so that its place can be written."""
        kept = self._kept
        if kept is None or kept.kind is not FrameKind.LAST or not kept.length:
            return
        self._mark(kept.length)
        self._store_partial(self._number + 1, kept.length)
        self._file.flush()
        self._file.truncate(Record(FrameKind.PARTIAL, self._number + 1, kept.length).end)

    def _mark(self, length: int) -> None:
        """Have the size of the file tell the length of the last frame, durably."""
        self._file.truncate(marked_size(self._number, length))
        self._file.flush()

    def _unpin(self) -> None:
        """Make the frame before durable, and free the places of its former records."""
        if self._is_pinned:
            self._file.flush()
            self._file.cut(frame_offset(self._number))
            self._is_pinned = False

    def _store_whole(self) -> None:
        """Store the frame in memory, which is full; begin the next."""
        self._unpin()
        self._keep_apart()
        stored = self._store(FrameKind.WHOLE, self._number, FRAME_BYTES)
        if self._hasher is not None:
            self._hasher.update(stored)
        self._is_pinned = self._kept is not None and self._kept.length > 0
        self._kept = None
        self._number += 1
        self._count = 0

    def _store_last(self) -> None:
        if self._kept is None or not self._kept.length:
            self._file.cut(frame_offset(self._number))
        self._store(FrameKind.LAST, self._number, self._count)
        self._kept = Record(FrameKind.LAST, self._number, self._count)

    def _store_partial(self, place: int, count: int) -> None:
        self._store(FrameKind.PARTIAL, place, count)
        self._kept = Record(FrameKind.PARTIAL, place, count)

    def _store(self, kind: FrameKind, place: int, count: int) -> memoryview:
        """Seal the first `count` bytes in memory and write them, the first time with the header.

        Return the sealed frame, valid until the next one.
        """
        assert self._cipher is not None
        start = 0 if self._has_header else HEADER_BYTES
        out = scratch()
        out[:start] = self._cipher.header[:start]
        with memoryview(self._buffer) as plaintext:
            end = start + self._cipher.seal(kind, self._number, plaintext[:count], out[start:])
        self._file.write_all(out[:end], frame_offset(place) - start)
        self._has_header = True
        return out[start:end]

    def _make_room(self, count: int) -> None:
        if count > len(self._buffer):
            size = FRAME_BYTES if count > _SMALL_BYTES else count
            self._buffer += bytes(size - len(self._buffer))

    def _resume_checksum(self) -> None:
        """Go on with the checksum of an earlier hold, if no frame of it has changed since."""
        assert self._cipher is not None
        running = self._checksums.take(self._upload_id)
        if not self._number:
            self._hasher = blake3(self._cipher.header)
        elif running and running.number == self._number and running.tag == self._tag():
            self._hasher = running.hasher
        else:
            self._hasher = None

    def _tag(self) -> bytes | None:
        """Return the tag of the frame before `_number`, or None if it is not there."""
        tag = bytearray(TAG_BYTES)
        offset = frame_offset(self._number) - TAG_BYTES
        return bytes(tag) if read_exactly(self._file.descriptor, memoryview(tag), offset) else None


def _is_clean(size: int, number: int, count: int) -> bool:
    """Return True if a file of this size has nothing that was written after an acknowledgement.

    The acknowledged bytes end at `count` of frame `number`. What may be behind their record is an
    earlier one, or a mark for a last frame before it, which are shorter. After a flush that failed,
    the mark is longer (`SealedBytes.mark`).
    """
    if not count:
        return size <= frame_offset(number) + OVERHEAD
    is_marked = 0 <= size - marked_size(number, 0) < count
    return is_marked or size <= frame_offset(number + 2) + OVERHEAD + count
