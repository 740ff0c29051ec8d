"""Find and read the frames of sealed bytes in a file, also while they are staged.

The acknowledged bytes of an upload may end in the middle of a frame, number `k`. They survive a
crash at any moment because no write overwrites the record that holds them. This record is one of:

- a last frame in its place at the end of the file, as in an object (after the first flush within
  the frame, or a commit whose row was not written);
- a partial frame in the place of frame `k + 1` or `k + 2`, alternately (after later flushes);
- the beginning of a whole frame in its place (written by a later writer, not acknowledged).

The length of a last frame follows from the size of the file or, if the frames are packed, from its
entry (`registry.blobstore.sealed.layout`). Before a partial frame is written after a last frame,
the file is extended to a size that records the length too (`marked_size`).

For packed frames, the places of frames `k + 1` and `k + 2` are computed as if none were compressed.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from registry.blobstore.base import DataKey
from registry.blobstore.sealed.compression import compressed, decompress_into
from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    SLOT_BYTES,
    FrameCipher,
    FrameKind,
    SealBroken,
    says_packed,
)
from registry.blobstore.sealed.layout import (
    ENTRY_BYTES,
    Layout,
    Packed,
    Record,
    Slots,
    entry_of,
    partial,
)
from registry.blobstore.staged_io import read_exactly

PARTIAL_PLACES: Final = (1, 2)
_SMALLER: Final = {FrameKind.WHOLE: FrameKind.WHOLE_ZSTD, FrameKind.LAST: FrameKind.LAST_ZSTD}
_local = threading.local()


def scratch(name: str = "sealed") -> memoryview:
    """Return a buffer for a header and a frame; each thread has one buffer per `name`.

    The thread's next call with this name returns the same buffer: new buffers cost page faults.
    """
    needed = HEADER_BYTES + ENTRY_BYTES + SLOT_BYTES
    found: memoryview | None = getattr(_local, name, None)
    if found is None or len(found) < needed:
        found = memoryview(bytearray(needed))
        setattr(_local, name, found)
    return found


def seal_frame(
    cipher: FrameCipher, kind: FrameKind, number: int, piece: memoryview, out: memoryview
) -> tuple[FrameKind, int]:
    """Write a sealed frame to `out`, with its entry if the frames are packed.

    Return the frame's kind, and the length of what was written. `kind` is the kind without
    compression. With packed frames, a whole or last frame is compressed if that makes it smaller.
    """
    if not cipher.is_packed:
        return kind, cipher.seal(kind, number, piece, out)
    payload: memoryview | bytes = piece
    smaller = compressed(piece) if kind in _SMALLER else None
    if smaller is not None:
        kind, payload = _SMALLER[kind], smaller
    out[:ENTRY_BYTES] = entry_of(kind, len(payload))
    return kind, ENTRY_BYTES + cipher.seal(kind, number, payload, out[ENTRY_BYTES:])


def open_frame(
    cipher: FrameCipher, number: int, record: Record, stored: memoryview, out: memoryview
) -> memoryview:
    """Decrypt and decompress a stored frame into `out`; return the part of `out` with the bytes.

    Raise `SealBroken` if `stored` is another frame, or was changed; `out` is then undefined.
    """
    if not cipher.is_packed:
        return cipher.open(record.kind, number, stored, out)
    sealed = stored[ENTRY_BYTES:]
    if stored[:ENTRY_BYTES] != entry_of(record.kind, len(sealed) - OVERHEAD):
        raise SealBroken(f"frame {number} has another entry")
    if not record.is_compressed:
        return cipher.open(record.kind, number, sealed, out)
    payload = cipher.open(record.kind, number, sealed, scratch("payload"))
    count = decompress_into(payload, out[: record.length])
    if count is None or (record.is_whole and count < record.length):
        raise SealBroken(f"frame {number} cannot be decompressed")
    return out[:count]


def read_cipher(descriptor: int, data_key: DataKey, object_id: str) -> FrameCipher:
    """Return the cipher of the stored bytes of a file.

    Raise `SealBroken` if the file's header was not made with this key for this object.
    """
    header = bytearray(HEADER_BYTES)
    is_whole = read_exactly(descriptor, memoryview(header), 0)
    return FrameCipher.of_header(bytes(header) if is_whole else b"", data_key, object_id)


def read_layout(descriptor: int, count: int, *, is_packed: bool) -> Layout:
    """Return the layout of the first `count` frames of a file, or of all if there are fewer."""
    if not is_packed:
        return Slots()
    return Packed.walk(descriptor, os.fstat(descriptor).st_size, count)


def read_frame(
    descriptor: int, cipher: FrameCipher, number: int, record: Record, out: memoryview
) -> memoryview:
    """Decrypt the stored frame at `record` into `out`; return the part of `out` that has the bytes.

    Raise `SealBroken` if the frame is not there.
    """
    stored = scratch()[: record.stored]
    if not read_exactly(descriptor, stored, record.start):
        raise SealBroken("the file ends before the frame")
    return open_frame(cipher, number, record, stored, out)


def resumable_at(descriptor: int, received: int) -> int:
    """Return how many of `received` acknowledged bytes a file can hold.

    These are all bytes if the file is long enough for the last, partial frame; else only full
    frames. Whether a frame decrypts is not checked, since that needs the key.
    """
    size = os.fstat(descriptor).st_size
    number, count = divmod(received, FRAME_BYTES)
    header = bytearray(HEADER_BYTES)
    is_packed = read_exactly(descriptor, memoryview(header), 0) and says_packed(header)
    layout = read_layout(descriptor, number, is_packed=is_packed)
    whole = min(number, layout.before(size))
    if whole < number:
        return whole * FRAME_BYTES
    if not count:
        return received
    room = partial(layout, number, 1, count).end if is_packed else layout.record(number, count).end
    is_there = size >= room or any(
        record.length >= count and record.end <= size
        for record in layout.in_place(descriptor, number, size)
    )
    return received if is_there else whole * FRAME_BYTES


def find_record(
    descriptor: int, cipher: FrameCipher, layout: Layout, number: int, count: int, out: memoryview
) -> Record | None:
    """Find a record that holds the first `count` bytes of a frame, and decrypt them into `out`.

    Return None if there is none. Partial frames are tried first: a whole frame may not be durable
    yet, and partial frames are overwritten only after it is.
    """
    size = os.fstat(descriptor).st_size
    for record in _candidates(descriptor, layout, number, count, size):
        try:
            found = read_frame(descriptor, cipher, number, record, out)
        except SealBroken:
            continue
        if len(found) >= count:
            return record._replace(length=len(found))
    return None


def _candidates(
    descriptor: int, layout: Layout, number: int, count: int, size: int
) -> list[Record]:
    in_place = layout.in_place(descriptor, number, size)
    if not count:  # no bytes to find; but a file that ends in an empty last frame can stay so
        return [each for each in in_place if (each.length, each.end) == (0, size)]
    found = [partial(layout, number, place, count) for place in PARTIAL_PLACES]
    found += [each for each in in_place if each.length >= count]
    return [each for each in found if each.end <= size]
