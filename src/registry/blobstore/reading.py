"""Open objects, which are read in threads, and staged bytes, which are read while they grow."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from cloudcore.serving.asgi import FileRegion
from cloudcore.threads import Runner
from registry.blobstore.base import OpenObject, StagedDropped
from registry.blobstore.staging import checked_range


class BlockingObject:
    """An object open for reading (`OpenObject`), in no file unless `file_region` is overridden."""

    __slots__ = ()

    length: int
    """The number of bytes."""

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may block, because it frees the bytes of a deleted object."""
        return False

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:
        """Return a range as a region of a file, or None if the bytes are not in a file."""
        checked_range(start, stop, self.length)
        return None

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range in order (`OpenObject.chunks`)."""
        return self._read(*checked_range(start, stop, self.length))

    def shared_chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range for a client (`OpenObject.shared_chunks`)."""
        return self.chunks(start, stop)

    def _read(self, offset: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes ``[offset, end)``; the caller has checked that the range is valid."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the object; calling it again does nothing."""


class StoredBytes(BlockingObject):
    """The bytes of an object as they are stored."""

    __slots__ = ()

    def read_into(self, view: memoryview, offset: int, *, wait: bool = True) -> bool:
        """Fill `view`; return False if bytes are missing or, without `wait`, if it might block.

        Raise `StoreUnavailable` if reading failed.
        """
        raise NotImplementedError

    def expect(self, offset: int, count: int) -> None:
        """Announce that a large range will be read in order; only a hint."""


class StagedGrowth(NamedTuple):
    """The size of staged bytes, and whether it is final."""

    size: int
    is_committed: bool


class StagedLook(NamedTuple):
    """The result of `BlockingGrowing.look`: bytes, the size so far, and whether it is final."""

    part: bytes
    """The bytes at the reader's offset; empty if there are none, or they cannot be read yet."""
    size: int | None
    """The number of bytes so far; None if unknown."""
    is_committed: bool = False


class BlockingGrowing:
    """Staged bytes open for reading while they grow."""

    def look(self, offset: int, count: int) -> StagedLook:
        """Return up to `count` bytes from `offset`, possibly none yet, and the size so far.

        Raise `StagedDropped` if the bytes were cut off, or if the upload was discarded.
        """
        size, is_committed = self.growth()
        part = self.read(offset, min(count, size - offset)) if offset < size else b""
        return StagedLook(part, size, is_committed)

    def growth(self) -> StagedGrowth:
        """Return the number of bytes, and whether they are committed; raise as `look` does."""
        raise NotImplementedError

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes within the size that `growth` returned; or raise `StagedDropped`."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the bytes; calling it again does nothing."""


PART_BYTES: Final = 256 * 1024
_END: Final = 1 << 62


class ThreadedObject(OpenObject):
    """A whole object whose blocking calls `run` makes in threads."""

    __slots__ = ("_run", "_stored")

    def __init__(self, stored: BlockingObject, run: Runner) -> None:
        self._stored = stored
        self._run = run

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self._stored.length

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:
        """Return a range as a region of a file, or None if the bytes are not in a file."""
        return self._stored.file_region(start, stop)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range in order. Blocks."""
        return self._stored.chunks(start, stop)

    def shared_chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range for a client. Blocks."""
        return self._stored.shared_chunks(start, stop)

    async def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order."""
        chunks = self._stored.chunks(start, stop)
        left = (self._stored.length if stop is None else stop) - start
        while left > 0:
            parts = await self._run(_next_parts, chunks)
            if not parts:
                return
            for part in parts:
                left -= len(part)
                yield part

    async def aclose(self) -> None:
        """Release the object."""
        if self._stored.closes_slowly:
            await self._run(self._stored.close)
        else:
            self._stored.close()


def _next_parts(chunks: Iterator[memoryview]) -> list[bytes]:
    """Return a copy of the next chunk, split into parts of 256 KiB; an empty list at the end."""
    chunk = next(chunks, b"")
    return [bytes(chunk[at : at + PART_BYTES]) for at in range(0, len(chunk), PART_BYTES)]


class GrowthSignals:
    """Wakes readers of staged bytes when a writer in this process has changed the bytes."""

    def __init__(self) -> None:
        self.followers: dict[str, set[_Follower]] = defaultdict(set)
        self._lock = threading.Lock()

    def notify(self, upload_id: str) -> None:
        """Wake the followers of an upload. May be called from any thread."""
        if self.followers:  # without followers, do not wait for the lock
            with self._lock:
                for follower in self.followers.get(upload_id, ()):
                    follower.wake()

    def follow(self, upload_id: str) -> _Follower:
        """Return a new follower of an upload; call `unfollow` for it at the end."""
        follower = _Follower()
        with self._lock:
            self.followers[upload_id].add(follower)
        return follower

    def unfollow(self, upload_id: str, follower: _Follower) -> None:
        """Remove a follower."""
        with self._lock:
            self.followers[upload_id].discard(follower)
            if not self.followers[upload_id]:
                del self.followers[upload_id]


class _Follower:
    """Sleeps on an event loop until woken from any thread, or until a timeout."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing sleeps on it
            self._loop.call_soon_threadsafe(self._event.set)

    def begin(self) -> None:
        """Clear earlier wakes; call this before looking at the bytes."""
        self._event.clear()

    async def sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)


class GrowingObject(OpenObject):
    """Staged bytes, read while they grow.

    Writes of other processes are detected by polling every `look_seconds`. If a `rewind` cuts bytes
    off and others replace them between two polls, no reader notices: a caller that passes growing
    bytes on must verify their digest.
    """

    def __init__(
        self,
        growing: BlockingGrowing,
        upload_id: str,
        run: Runner,
        signals: GrowthSignals,
        look_seconds: float,
    ) -> None:
        self._growing = growing
        self._upload_id = upload_id
        self._run = run
        self._signals = signals
        self._look_seconds = look_seconds
        self._length: int | None = None

    @property
    def length(self) -> int | None:
        """Return the number of bytes, or None until `stream` has seen the commit."""
        return self._length

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:  # noqa: ARG002
        """Return None: ``sendfile`` does not wait for bytes to arrive."""
        return None

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:  # noqa: ARG002
        """Raise `ValueError`: a thread must not wait for bytes to arrive."""
        raise ValueError("growing bytes are read by stream alone")

    async def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order, as it is written."""
        if start < 0 or (stop is not None and stop < start):
            raise ValueError("a range starts at 0 or later and does not end before it starts")
        follower = self._signals.follow(self._upload_id)
        offset, end = start, _END if stop is None else stop
        try:
            while offset < end:
                follower.begin()
                seen = await self._run(self._growing.look, offset, min(end - offset, PART_BYTES))
                size = seen.size
                if size is not None and size < offset > start:
                    raise StagedDropped("the staged bytes were cut off")
                if seen.part:
                    yield seen.part
                    offset += len(seen.part)
                if seen.is_committed and size is not None:
                    self._length = size
                    if size < max(start, stop or 0) and size <= offset:
                        raise ValueError("the range ends after the object")
                    end = min(end, size)
                elif not seen.part:
                    await follower.sleep(self._look_seconds)
        finally:
            self._signals.unfollow(self._upload_id, follower)

    async def aclose(self) -> None:
        """Release the bytes."""
        await self._run(self._growing.close)
