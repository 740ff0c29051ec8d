"""Decrypted frames that several readers of one object share.

When many machines start with the same image, they pull the same blobs at the same time. The first
reader that comes to a frame decrypts it, and those close behind it send the same bytes. What no
other reader will come to is not kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from registry.blobstore.sealed_format import FRAME_BYTES

MOST_FRAMES: Final = 32
"""Frames of 1 MiB that a store keeps; readers that would need more decrypt for themselves."""

_Place = tuple[bytes, int]
"""An object's header, which no other object has, and the number of a frame."""


class _Frame:
    """A decrypted frame, or one that a reader is decrypting."""

    __slots__ = ("buffer", "decrypted", "found", "users")

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.decrypted = threading.Event()
        self.found: memoryview | None = None
        """The bytes, once `decrypted` is set; None if that failed."""
        self.users = 1


class Reader:
    """One reader of a range of an object, in order."""

    __slots__ = ("_frames", "_header", "number", "stop")

    def __init__(self, frames: SharedFrames, header: bytes, number: int, stop: int) -> None:
        self._frames = frames
        self._header = header
        self.number = number
        """The frame that it reads, or will read next."""
        self.stop = stop
        """The frame behind its last one."""

    @contextmanager
    def frame(
        self, number: int, decrypt: Callable[[memoryview], memoryview]
    ) -> Iterator[memoryview | None]:
        """Yield a frame that this or another reader has decrypted; valid until the block ends.

        Yield None if the reader shall decrypt it for itself: no other reader comes here soon, all
        room is in use, or another reader has failed to decrypt it. Blocks while another one does.

        Raises:
            Exception: what `decrypt` raises.

        """
        self.number = number
        frame, is_new = self._frames._take((self._header, number), self)
        if frame is None:
            yield None
            return
        try:
            if is_new:
                try:
                    frame.found = decrypt(frame.buffer)
                finally:
                    if frame.found is None:
                        self._frames._drop((self._header, number), frame)
                    frame.decrypted.set()
            else:
                frame.decrypted.wait()
            yield frame.found
        finally:
            self._frames._release(frame)


class SharedFrames:
    """The frames that the readers of a store share. May be used by several threads."""

    def __init__(self, most: int = MOST_FRAMES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._readers: defaultdict[bytes, set[Reader]] = defaultdict(set)
        self._frames: OrderedDict[_Place, _Frame] = OrderedDict()
        """The frames, those that were not used for longest first."""

    @contextmanager
    def reading(self, header: bytes, number: int, stop: int) -> Iterator[Reader]:
        """Yield a reader of the frames from `number` to `stop` of the object with this header.

        It has proved that it has the key. When the object's last reader ends, its frames go.
        """
        reader = Reader(self, header, number, stop)
        with self._lock:
            self._readers[header].add(reader)
        try:
            yield reader
        finally:
            with self._lock:
                readers = self._readers[header]
                readers.discard(reader)
                if not readers:
                    del self._readers[header]
                    for place in [place for place in self._frames if place[0] == header]:
                        del self._frames[place]

    def _take(self, place: _Place, reader: Reader) -> tuple[_Frame | None, bool]:
        """Return a frame for `reader` to use, and whether it must decrypt it."""
        with self._lock:
            frame = self._frames.get(place)
            if frame is not None:
                frame.users += 1
                self._frames.move_to_end(place)
                return frame, False
            if not self._is_awaited(place, reader):
                return None, False
            buffer = self._room()
            if buffer is None:
                return None, False
            frame = self._frames[place] = _Frame(buffer)
            return frame, True

    def _is_awaited(self, place: _Place, reader: Reader) -> bool:
        """Return True if another reader comes to a frame before it would have to go."""
        header, number = place
        return any(
            0 <= number - each.number < self._most and number < each.stop
            for each in self._readers[header]
            if each is not reader
        )

    def _room(self) -> memoryview | None:
        if len(self._frames) < self._most:
            return memoryview(bytearray(FRAME_BYTES))
        for place, frame in self._frames.items():
            if not frame.users:
                del self._frames[place]
                return frame.buffer  # a new one would cost page faults
        return None

    def _release(self, frame: _Frame) -> None:
        with self._lock:
            frame.users -= 1

    def _drop(self, place: _Place, frame: _Frame) -> None:
        with self._lock:
            if self._frames.get(place) is frame:
                del self._frames[place]
