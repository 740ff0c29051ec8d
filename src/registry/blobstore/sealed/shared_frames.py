"""Decrypt a frame once for all readers of the same object at about the same time.

Machines that start together pull the same layers. A reader leaves a frame in memory for readers
that will reach it soon. The memory is bounded, and freed with the last reader. Only frames with a
verified tag are shared, and only among readers that have opened the object with its key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from registry.blobstore.sealed.frame_format import FRAME_BYTES

FRAMES: Final = 16
"""Maximum frames in memory, each of 1 MiB."""

Make = Callable[[int, memoryview], memoryview]
"""Decrypts the frame with a number into a buffer; returns the part of it that has the bytes."""


class _Slot:
    """A buffer that several readers share, with a decrypted frame once `found` is set."""

    __slots__ = ("buffer", "filling", "found", "users")

    def __init__(self, buffer: memoryview) -> None:
        self.buffer: Final = buffer
        self.filling: Final = threading.Lock()
        self.found: memoryview | None = None
        self.users = 1

    def fill(self, number: int, make: Make) -> memoryview:
        """Return the frame; decrypt it if no thread has, or wait for the thread that does so."""
        with self.filling:
            if self.found is None:
                self.found = make(number, self.buffer)
            return self.found


class FrameReader:
    """A reader of the frames ``[position, end)`` of an object in order, in a ``with`` block."""

    __slots__ = ("_own", "_shared", "end", "held", "position", "seal")

    def __init__(self, shared: SharedFrames, seal: bytes, position: int, end: int) -> None:
        self._shared = shared
        self._own: memoryview | None = None
        self.seal: Final = seal
        self.position = position
        self.end: Final = end
        self.held: tuple[int, _Slot] | None = None
        """The number and the slot of the frame that `frame` returned last."""

    def frame(self, number: int, make: Make) -> memoryview:
        """Return a frame, valid until the next call; decrypt it with `make` if no other reader did.

        Errors of `make` are raised here, in each reader that needs the frame.
        """
        slot = self._shared.take(self, number)
        if slot is not None:
            try:
                return slot.fill(number, make)
            except BaseException:
                self._shared.give_back(self)
                raise
        if self._own is None:
            self._own = memoryview(bytearray(FRAME_BYTES))
        return make(number, self._own)

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End reading; the frame that was returned last becomes invalid."""
        self._shared.leave(self)


class SharedFrames:
    """The decrypted frames that readers in this process share. Safe for threads."""

    def __init__(self, limit: int = FRAMES) -> None:
        """Cache at most `limit` frames."""
        self._limit = limit
        self._lock = threading.Lock()
        self._readers: dict[bytes, set[FrameReader]] = defaultdict(set)
        self._slots: OrderedDict[tuple[bytes, int], _Slot] = OrderedDict()
        self._spare: list[memoryview] = []

    @property
    def kept(self) -> int:
        """Return the number of cached frames."""
        return len(self._slots)

    def reading(self, seal: bytes, first: int, end: int) -> FrameReader:
        """Return a reader of the frames ``[first, end)``, to be used in a ``with`` block.

        `seal` is the header of the object: its salt and commitment are unique to object and key.
        """
        reader = FrameReader(self, seal, first, end)
        with self._lock:
            self._readers[seal].add(reader)
        return reader

    def take(self, reader: FrameReader, number: int) -> _Slot | None:
        """Return the slot of a frame; None if no other reader needs the frame, or no slot is free.

        The reader's previous slot is released.
        """
        with self._lock:
            self._give_back(reader)
            reader.position = number + 1
            key = (reader.seal, number)
            slot = self._slots.get(key)
            if slot is not None:
                slot.users += 1
            elif self._is_wanted(reader.seal, number):
                slot = self._new(key)
            if slot is not None:
                reader.held = number, slot
            return slot

    def give_back(self, reader: FrameReader) -> None:
        """Release the slot that a reader holds, if any."""
        with self._lock:
            self._give_back(reader)

    def leave(self, reader: FrameReader) -> None:
        """Remove a reader.

        The last reader of an object frees the object's frames; the last reader of all objects frees
        the memory.
        """
        with self._lock:
            self._give_back(reader)
            others = self._readers[reader.seal]
            others.discard(reader)
            if others:
                return
            del self._readers[reader.seal]
            for key in [at for at in self._slots if at[0] == reader.seal]:
                self._forget(key)
            if not self._readers:
                self._spare.clear()

    def _give_back(self, reader: FrameReader) -> None:
        """Release a reader's slot.

        If no other reader uses the slot, drop it unless its frame is decrypted and another reader
        will soon reach the frame.
        """
        if reader.held is None:
            return
        number, slot = reader.held
        reader.held = None
        slot.users -= 1
        if slot.users:
            return
        key = (reader.seal, number)
        if slot.found is None or not self._is_wanted(reader.seal, number):
            self._forget(key)
        else:
            self._slots.move_to_end(key)

    def _new(self, key: tuple[bytes, int]) -> _Slot | None:
        """Return a new slot, or None if all slots are in use.

        At the limit, first drop the least recently used slot that no reader uses.
        """
        if not self._spare and len(self._slots) >= self._limit:
            unused = next((at for at, slot in self._slots.items() if not slot.users), None)
            if unused is None:
                return None
            self._forget(unused)
        buffer = self._spare.pop() if self._spare else memoryview(bytearray(FRAME_BYTES))
        slot = self._slots[key] = _Slot(buffer)
        return slot

    def _forget(self, key: tuple[bytes, int]) -> None:
        self._spare.append(self._slots.pop(key).buffer)

    def _is_wanted(self, seal: bytes, number: int) -> bool:
        """Return True if another reader will soon reach the frame."""
        for each in self._readers.get(seal, ()):
            if each.position <= number < each.end and number - each.position < self._limit:
                return True
        return False
