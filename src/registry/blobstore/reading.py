"""Objects with blocking calls, read in threads; and staged bytes, read while they grow."""

# ruff: noqa: D102 - where no docstring is, the interface of the same call has it

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, runtime_checkable

from registry.blobstore.base import FileRegion, OpenObject, StagedDropped
from registry.blobstore.threads import Runner


class BlockingObject(Protocol):
    """An object open for reading (`OpenObject`)."""

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        ...

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may block: it frees the bytes of a deleted object."""
        ...

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None: ...

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]: ...

    def shared_chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """See `OpenObject.shared_chunks`."""
        return self.chunks(start, stop)

    def close(self) -> None: ...


class Growth(NamedTuple):
    """The size of staged bytes, and whether it is final."""

    size: int
    is_committed: bool


@runtime_checkable
class BlockingGrowing(Protocol):
    """Staged bytes open for reading while they grow."""

    def look(self) -> Growth:
        """Return the number of bytes, and whether they are committed.

        Raises:
            StagedDropped: they are neither staged nor an object.

        """
        ...

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset`; they must have been seen by `look`.

        Raises:
            StagedDropped: they were cut off.

        """
        ...

    def close(self) -> None:
        """Release them; calling it again does nothing."""
        ...


PART_BYTES: Final = 256 * 1024


class ThreadedObject(OpenObject):
    """A whole object, read by `run`."""

    __slots__ = ("_run", "_stored")

    def __init__(self, stored: BlockingObject, run: Runner) -> None:
        self._stored = stored
        self._run = run

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self._stored.length

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:
        """Return where a range lies in a file, if it does."""
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
    """Return a copy of the next chunk in parts of 256 KiB, none at the end."""
    chunk = next(chunks, b"")
    return [bytes(chunk[at : at + PART_BYTES]) for at in range(0, len(chunk), PART_BYTES)]


class GrowthSignals:
    """Wake the followers of staged bytes when this process has changed the bytes."""

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
    """Sleep on an event loop until woken from any thread, or until a timeout."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing sleeps on it
            self._loop.call_soon_threadsafe(self._event.set)

    def begin(self) -> None:
        """Forget earlier wakes; call it before looking at the bytes."""
        self._event.clear()

    async def sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)


class GrowingObject(OpenObject):
    """Staged bytes, read while they grow.

    Changes of another process are polled every `look_seconds`. If bytes are cut off by a `rewind`
    and replaced between two polls, that is not noticed: a caller that passes growing bytes on must
    verify their digest.
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
        """Return the number of bytes, or None while `stream` has not seen them committed."""
        return self._length

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:  # noqa: ARG002
        """Return None, as ``sendfile`` does not wait for bytes."""
        return None

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:  # noqa: ARG002
        """Raise ValueError: a thread must not wait for bytes."""
        raise ValueError("growing bytes are read by stream alone")

    async def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order, as it is written."""
        if start < 0 or (stop is not None and stop < start):
            raise ValueError("a range starts at 0 or later and does not end before it starts")
        follower = self._signals.follow(self._upload_id)
        offset = start
        try:
            while stop is None or offset < stop:
                follower.begin()
                size, is_committed = await self._run(self._growing.look)
                if size < offset > start:
                    raise StagedDropped("the staged bytes were cut off")
                end = size if stop is None else min(size, stop)
                while offset < end:
                    count = min(end - offset, PART_BYTES)
                    yield await self._run(self._growing.read, offset, count)
                    offset += count
                if is_committed:
                    self._length = size
                    if size < max(start, stop or 0):
                        raise ValueError("the range ends after the object")
                    return
                if stop is None or offset < stop:
                    await follower.sleep(self._look_seconds)
        finally:
            self._signals.unfollow(self._upload_id, follower)

    async def aclose(self) -> None:
        """Release the bytes."""
        await self._run(self._growing.close)
