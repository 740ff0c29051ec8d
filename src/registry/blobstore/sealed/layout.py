"""Positions of the frames of sealed bytes: in slots of one size, or packed one after another.

The frames of a packed object have different lengths, since they may be compressed. So each is
preceded by its *entry*: its kind and the length of its payload, the part that is encrypted. Staged
bytes are read from entry to entry; an object has all entries in its table
(`registry.blobstore.sealed.table`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Final, NamedTuple

from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    SLOT_BYTES,
    FrameKind,
    SealBroken,
    frame_offset,
)
from registry.blobstore.staged_io import read_exactly

ENTRY_BYTES: Final = 4
_LENGTH_BITS: Final = 24
_LENGTH_MASK: Final = (1 << _LENGTH_BITS) - 1
# Tuples, not sets: the hash of an enum member is computed by a function in Python.
_WHOLE: Final = (FrameKind.WHOLE, FrameKind.WHOLE_ZSTD)
_LAST: Final = (FrameKind.LAST, FrameKind.LAST_ZSTD)
_ZSTD: Final = (FrameKind.WHOLE_ZSTD, FrameKind.LAST_ZSTD)
_MARKED_SLOTS: Final = 3


class Record(NamedTuple):
    """The position, kind and length of a stored frame."""

    kind: FrameKind
    start: int
    """Offset in the file where the frame begins, with its entry if it has one."""
    stored: int
    """Length of the frame in the file, with its entry, in bytes."""
    length: int
    """Bytes of the object in the frame; for a compressed last frame, the maximum."""

    @property
    def end(self) -> int:
        """Return the offset in the file where the frame ends."""
        return self.start + self.stored

    @property
    def is_whole(self) -> bool:
        """Return True if the frame is full."""
        return self.kind in _WHOLE

    @property
    def is_last(self) -> bool:
        """Return True if the frame is the last of its object."""
        return self.kind in _LAST

    @property
    def is_compressed(self) -> bool:
        """Return True if the frame's payload is compressed with zstd."""
        return self.kind in _ZSTD


class Slots:
    """Frames in slots of one size, whose positions are computed."""

    entry_bytes = 0
    """Bytes before the nonce of each frame."""

    def start(self, number: int) -> int:
        """Return the offset in the file where frame `number` begins."""
        return frame_offset(number)

    def record(self, number: int, length: int) -> Record:
        """Return the record of frame `number`, which has `length` bytes of the object."""
        kind = FrameKind.WHOLE if length == FRAME_BYTES else FrameKind.LAST
        return Record(kind, frame_offset(number), length + OVERHEAD, length)

    def add(self, record: Record) -> None:
        """Do nothing: positions are computed."""

    def cut(self, number: int) -> None:
        """Do nothing: positions are computed."""

    def before(self, size: int) -> int:
        """Return how many slots fit in a file of `size` bytes."""
        return max(0, size - HEADER_BYTES) // SLOT_BYTES

    def in_place(self, descriptor: int, number: int, size: int) -> Iterator[Record]:  # noqa: ARG002
        """Yield the records that a frame may have: as a last frame, then as a whole frame.

        The length of a last frame follows from `size`, the size of the file.
        """
        for length in (size - frame_offset(number) - OVERHEAD, size - marked_size(self, number, 0)):
            if 0 <= length < FRAME_BYTES:
                yield self.record(number, length)
        yield self.record(number, FRAME_BYTES)


class Packed:
    """Frames stored one after another, each preceded by its entry.

    `entries` are those of the frames added so far: for staged bytes, all whole frames before the
    partial frame; for an object, all frames.
    """

    entry_bytes = ENTRY_BYTES

    def __init__(self, entries: array[int] | None = None) -> None:
        """Begin with these entries, each a 32-bit integer, or with none."""
        self.entries: Final = array("I") if entries is None else entries
        stored = ((entry & _LENGTH_MASK) + ENTRY_BYTES + OVERHEAD for entry in self.entries)
        self._starts = array("Q", accumulate(chain((HEADER_BYTES,), stored)))

    @classmethod
    def walk(cls, descriptor: int, size: int, count: int) -> Packed:
        """Read the entries of up to `count` whole frames in a file of `size` bytes.

        The entries in the file are trusted; only decryption shows whether the frames are there.
        """
        found = cls()
        for number in range(count):
            record = next(found.in_place(descriptor, number, size), None)
            if record is None or not record.is_whole:
                break
            found.add(record)
        return found

    def start(self, number: int) -> int:
        """Return the offset where an added frame, or the frame after all added ones, begins."""
        return self._starts[number]

    def record(self, number: int, length: int) -> Record:
        """Return the record of an added frame, which has `length` bytes of the object.

        Raise `SealBroken` if its entry has another length.
        """
        record = _record(self.entries[number], self._starts[number])
        is_right = (
            record is not None
            and record.is_whole == (length == FRAME_BYTES)
            and (record.length >= length if record.is_compressed else record.length == length)
        )
        if record is None or not is_right:
            raise SealBroken(f"frame {number} has another length")
        return record if record.length == length else record._replace(length=length)

    def add(self, record: Record) -> None:
        """Append a frame."""
        self.entries.append(_entry(record.kind, record.stored - ENTRY_BYTES - OVERHEAD))
        self._starts.append(record.end)

    def cut(self, number: int) -> None:
        """Remove frame `number` and all after it."""
        del self.entries[number:]
        del self._starts[number + 1 :]

    def before(self, size: int) -> int:
        """Return how many of the added frames the first `size` bytes of the file contain."""
        return max(0, bisect_right(self._starts, size) - 1)

    def in_place(self, descriptor: int, number: int, size: int) -> Iterator[Record]:
        """Yield the record of frame `number`, which is the first not added, if the file has it.

        `size` is the size of the file. The entry is trusted; only decryption shows whether the
        frame is there.
        """
        entry = bytearray(ENTRY_BYTES)
        start = self._starts[number]
        if read_exactly(descriptor, memoryview(entry), start):
            record = _record(int.from_bytes(entry, "big"), start)
            if record is not None and record.end <= size:
                yield record


Layout = Slots | Packed
"""The positions of frames."""


def new_layout(*, is_packed: bool) -> Layout:
    """Return a new layout, packed or in slots, to which no frame has been added."""
    return Packed() if is_packed else Slots()


def entry_of(kind: FrameKind, payload: int) -> bytes:
    """Return the entry of a frame with `payload` encrypted bytes."""
    return _entry(kind, payload).to_bytes(ENTRY_BYTES, "big")


def slot_bytes(layout: Layout) -> int:
    """Return the maximum bytes of a frame in the file."""
    return SLOT_BYTES + layout.entry_bytes


def partial(layout: Layout, number: int, place: int, length: int) -> Record:
    """Return the record of a partial frame of `length` bytes, `place` slots after its own place."""
    start = layout.start(number) + place * slot_bytes(layout)
    return Record(FrameKind.PARTIAL, start, length + layout.entry_bytes + OVERHEAD, length)


def marked_size(layout: Layout, number: int, length: int) -> int:
    """Return the file size that records a last frame of `length` bytes in its regular place.

    This size is larger than the end of any place for a partial frame `number`.
    """
    return layout.start(number) + _MARKED_SLOTS * slot_bytes(layout) + 1 + length


def _entry(kind: FrameKind, payload: int) -> int:
    return kind << _LENGTH_BITS | payload


def _record(entry: int, start: int) -> Record | None:
    """Decode an entry; return None if no frame of an object can have it."""
    kind, payload = entry >> _LENGTH_BITS, entry & _LENGTH_MASK
    stored = ENTRY_BYTES + OVERHEAD + payload
    if kind == FrameKind.WHOLE and payload == FRAME_BYTES:
        return Record(FrameKind.WHOLE, start, stored, payload)
    if payload >= FRAME_BYTES:
        return None
    if kind == FrameKind.LAST:
        return Record(FrameKind.LAST, start, stored, payload)
    if kind == FrameKind.WHOLE_ZSTD:
        return Record(FrameKind.WHOLE_ZSTD, start, stored, FRAME_BYTES)
    if kind == FrameKind.LAST_ZSTD:
        return Record(FrameKind.LAST_ZSTD, start, stored, FRAME_BYTES - 1)
    return None
