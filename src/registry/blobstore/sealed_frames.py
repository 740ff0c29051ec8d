"""Find and read the frames of sealed bytes in a file, also while they are staged.

The acknowledged bytes of an upload may end in the middle of a frame, number `k`. They survive a
crash at any moment because no write goes over the record that holds them:

- as the last frame, in its place at the end of the file, as in an object (the first flush in a
  frame, or a commit whose row was not written);
- as a partial frame in the place of frame `k + 1` or `k + 2`, alternately (later flushes);
- as the beginning of a whole frame in its place (a later hold wrote it, and was not acknowledged).

The length of a last frame is told by the size of the file. Before a partial frame is written behind
it, the file is extended to a size that tells the length too (`marked_size`).
"""

from __future__ import annotations

import os
import threading
from typing import Final, NamedTuple

from registry.blobstore.base import DataKey
from registry.blobstore.sealed_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    SLOT_BYTES,
    FrameCipher,
    FrameKind,
    SealBroken,
    frame_offset,
)
from registry.blobstore.staged_io import read_exactly

_PARTIAL_PLACES: Final = (1, 2)
_local = threading.local()


class Record(NamedTuple):
    """A stored frame that holds acknowledged bytes."""

    kind: FrameKind
    place: int
    """The number of the frame in whose place it is stored."""
    length: int
    """Bytes of its plaintext."""

    @property
    def end(self) -> int:
        """Return where it ends in the file."""
        return frame_offset(self.place) + OVERHEAD + self.length


def scratch() -> memoryview:
    """Return a buffer for a header and a frame that belongs to this thread.

    It is used again by the next caller in the thread; new large buffers cost page faults.
    """
    found: memoryview | None = getattr(_local, "scratch", None)
    if found is None or len(found) < HEADER_BYTES + SLOT_BYTES:
        found = _local.scratch = memoryview(bytearray(HEADER_BYTES + SLOT_BYTES))
    return found


def read_cipher(descriptor: int, data_key: DataKey, object_id: str) -> FrameCipher:
    """Return the cipher of the stored bytes of a file.

    Raises:
        SealBroken: its header was not made with this key for this object.

    """
    header = bytearray(HEADER_BYTES)
    is_whole = read_exactly(descriptor, memoryview(header), 0)
    return FrameCipher.of_header(bytes(header) if is_whole else b"", data_key, object_id)


def read_frame(
    descriptor: int, cipher: FrameCipher, number: int, record: Record, out: memoryview
) -> memoryview:
    """Decrypt the record of a frame into `out`; return the part of it that was written.

    Raises:
        SealBroken: it is not there.

    """
    sealed = scratch()[: record.length + OVERHEAD]
    if not read_exactly(descriptor, sealed, frame_offset(record.place)):
        raise SealBroken("the file ends before the frame")
    return cipher.open(record.kind, number, sealed, out)


def marked_size(number: int, length: int) -> int:
    """Return a size of the file which tells that the last frame, in its place, has `length` bytes.

    It is beyond all places where a partial frame `number` may be.
    """
    return frame_offset(number + 3) + 1 + length


def resumable_of(stored_size: int, received: int) -> int:
    """Return how many of `received` acknowledged bytes a file of this size can hold.

    All of them if there is room for a record of those in the last frame; else those of whole
    frames. Whether the record opens, only its key tells.
    """
    number, count = divmod(received, FRAME_BYTES)
    needed = frame_offset(number) + (count + OVERHEAD if count else 0)
    if stored_size >= needed or not received:
        return received
    return min(number, max(0, stored_size - HEADER_BYTES) // SLOT_BYTES) * FRAME_BYTES


def find_record(
    descriptor: int, cipher: FrameCipher, number: int, count: int, out: memoryview
) -> Record | None:
    """Find a record that holds the first `count` bytes of a frame, and decrypt it into `out`.

    A partial frame comes first, since a whole one in its place may not be durable yet. But a
    partial frame is only written over after the whole one is durable.
    """
    size = os.fstat(descriptor).st_size
    for record in _candidates(size, number, count):
        if record.end <= size:
            try:
                read_frame(descriptor, cipher, number, record, out)
            except SealBroken:
                continue
            return record
    return None


def _candidates(size: int, number: int, count: int) -> list[Record]:
    last = size - frame_offset(number) - OVERHEAD
    found = [Record(FrameKind.LAST, number, count)] if last == count else []
    if not count:
        return found
    found += [Record(FrameKind.PARTIAL, number + each, count) for each in _PARTIAL_PLACES]
    for length in (last, size - marked_size(number, 0)):
        if count <= length < FRAME_BYTES:
            found.append(Record(FrameKind.LAST, number, length))
    found.append(Record(FrameKind.WHOLE, number, FRAME_BYTES))
    return found
