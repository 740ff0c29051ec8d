"""The growing bytes of a blob that is being fetched, for the readers of this process.

The last few MiB are in memory. Slow or late readers read the staged file, so that no reader delays
the fill or fills the memory. If the process is busy, all readers fall behind together, so the
staged file is read once for all of them (`StagedParts`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple
from weakref import WeakSet

from cloudcore.errors import Unavailable
from cloudcore.serving.asgi import FileRegion
from registry.blobstore.base import DataKey, ObjectUnknown, OpenObject, StagedDropped
from registry.blobstore.sealed.frame_format import FRAME_BYTES
from registry.blobstore.store import BlobReader
from registry.errors import BlobUnknown

_PART_BYTES: Final = 256 * 1024
KEPT_PARTS: Final = 16
"""The maximum number of cached parts, each of 256 KiB."""


class StagedFill(NamedTuple):
    """The staged file of a fill: its id and data key."""

    stage_id: str
    data_key: DataKey | None

    def __repr__(self) -> str:
        return f"StagedFill({self.stage_id!r})"


class StagedParts:
    """The most recently read parts of one staged file; used on one event loop.

    While there is a reader, the file is open and parts are cached.
    """

    def __init__(self, reader: BlobReader, stage: StagedFill) -> None:
        self._reader = reader
        self._stage = stage
        self._readers = 0
        self._opened: OpenObject | None = None
        self._parts: OrderedDict[int, bytes] = OrderedDict()
        self._turn = asyncio.Lock()

    @property
    def kept(self) -> int:
        """Return the number of cached parts."""
        return len(self._parts)

    def join(self) -> None:
        """Add a reader."""
        self._readers += 1

    async def leave(self) -> None:
        """Remove a reader; after the last one, close the file and drop the cached parts."""
        self._readers -= 1
        if not self._readers:
            self._parts.clear()
            opened, self._opened = self._opened, None
            if opened is not None:
                await opened.aclose()

    async def part_at(self, offset: int, staged: int) -> bytes:
        """Return some bytes from `offset` on; the file is readable up to `staged`.

        Raise `ObjectUnknown` or `StagedDropped` if the bytes are gone, `StoreUnavailable` if they
        cannot be read.
        """
        part = self._kept(offset)
        if part:
            return part
        async with self._turn:
            part = self._kept(offset)  # another reader may have read it meanwhile
            if not part:
                await self._read(offset - offset % _PART_BYTES, staged)
                part = self._kept(offset)
        if not part:
            raise StagedDropped("fewer bytes are staged than were noted")
        return part

    def _kept(self, offset: int) -> bytes:
        """Return the rest of the cached part that contains an offset; empty if it is not cached."""
        number, skipped = divmod(offset, _PART_BYTES)
        part = self._parts.get(number, b"")
        if len(part) <= skipped:
            return b""
        self._parts.move_to_end(number)
        return part[skipped:] if skipped else part

    async def _read(self, start: int, staged: int) -> None:
        """Read and cache the parts from `start` to the end of its frame, the unit of decryption."""
        if self._opened is None:
            self._opened = await self._reader.open_staged(*self._stage)
        stop = min(start - start % FRAME_BYTES + FRAME_BYTES, staged)
        found = b"".join([each async for each in self._opened.stream(start, stop)])
        for at in range(0, len(found), _PART_BYTES):
            number = (start + at) // _PART_BYTES
            self._parts[number] = found[at : at + _PART_BYTES]
            self._parts.move_to_end(number)
        while len(self._parts) > KEPT_PARTS:
            self._parts.popitem(last=False)


KEPT_BYTES: Final = 4 * 1024 * 1024
"""The number of bytes that a feed keeps in memory; bytes that are not staged yet come on top."""
_PAUSE_SECONDS: Final = 0.005
"""Seconds for which small chunks are collected, so that readers are not woken for each."""


class Rewound(Unavailable):
    """Bytes that a reader already has were fetched again and may differ."""


class Feed:
    """The growing bytes of one blob, for all its readers; used on one event loop."""

    def __init__(self) -> None:
        self.size: int | None = None
        """The blob's size. None until it is known, and if readers must wait for the stored blob."""
        self.stage: StagedFill | None = None
        """The stage of the bytes that are not in memory, or None if all are."""
        self.is_right = False
        """True once the digest is verified: then the blob is stored."""
        self.failure: Exception | None = None
        self.is_given_up = False
        """True if the fill ended because the last reader had left; later readers get another feed.
        """
        self.readers: WeakSet[object] = WeakSet()
        """The readers, including those that wait for the first byte."""
        self.rewinds: list[int] = []
        """The offsets from which bytes were fetched again."""
        self._behind: StagedParts | None = None
        self._starts: list[int] = []
        self._parts: list[bytes] = []
        self.end = 0
        """The offset after the last byte that readers may have."""
        self._staged = 0
        self._loose: list[bytes] = []
        self._loose_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._change = asyncio.Event()

    @property
    def is_read(self) -> bool:
        """Return True if the feed has readers."""
        return bool(self.readers)

    @property
    def first(self) -> int:
        """Return the offset of the first byte in memory or, if there is none, of the next one."""
        return self._starts[0] if self._starts else self.end

    @property
    def has_ended(self) -> bool:
        """Return True if no more bytes will come."""
        return self.is_right or self.failure is not None

    async def opened(self) -> None:
        """Wait until the size is known, or the fill has ended; raise the fill's failure."""
        while self.size is None and not self.has_ended:
            await self.changed()
        if self.failure is not None:
            raise self.failure

    async def changed(self) -> None:
        """Wait until bytes, size, stage or state of the feed change."""
        await self._change.wait()

    def open(self, size: int | None, stage: StagedFill | None, offset: int = 0) -> None:
        """Set the size of the blob and its staged file; bytes will be appended from `offset` on.

        Raise `ValueError` if another size was set before.
        """
        if self.end > offset:
            self.rewinds.append(offset)
        self._forget_loose()
        self._starts, self._parts = [], []
        self.end = self._staged = offset
        self.stage, self._behind = stage, None
        if self.size is not None and size != self.size:
            raise ValueError("the size of a blob does not change")
        self.size = size
        self._wake()

    def append(self, chunk: bytes) -> None:
        """Add the next bytes."""
        if not chunk:
            return
        self._loose.append(chunk)
        self._loose_bytes += len(chunk)
        if self._loose_bytes >= _PART_BYTES or self._timer is None:
            self._release()

    def record_staged_bytes(self, offset: int) -> None:
        """Set the number of bytes that can be read from the staged file."""
        self._staged = offset
        self._evict()

    def finish(self) -> None:
        """End the feed successfully: the digest of the bytes is right."""
        self._release()
        self.is_right = True
        self._wake()

    def fail(self, failure: Exception) -> None:
        """End the feed with the fill's failure, unless the feed has already ended."""
        if not self.has_ended:
            self._forget_loose()
            self.failure = failure
            self._wake()

    def part_at(self, offset: int) -> bytes | None:
        """Return bytes from an offset on: empty if not there yet, None if no longer in memory."""
        if offset >= self.end:
            return b""
        number = bisect_right(self._starts, offset) - 1
        if number < 0:
            return None
        skipped = offset - self._starts[number]
        part = self._parts[number]
        return part[skipped:] if skipped else part

    def staged_parts(self, reader: BlobReader) -> StagedParts | None:
        """Return the shared reader of the staged file, or None if nothing is staged."""
        if self.stage is None:
            return None
        if self._behind is None:
            self._behind = StagedParts(reader, self.stage)
        return self._behind

    def _release(self) -> None:
        """Pass collected bytes to the readers; collect the next ones for some milliseconds."""
        loose = self._loose
        self._forget_loose()
        if not loose:
            return
        part = loose[0] if len(loose) == 1 else b"".join(loose)
        self._starts.append(self.end)
        self._parts.append(part)
        self.end += len(part)
        self._evict()
        self._timer = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._release)
        self._wake()

    def _evict(self) -> None:
        number = 0
        while (
            number + 1 < len(self._starts)
            and self.end - self._starts[number + 1] >= KEPT_BYTES
            and self._starts[number + 1] <= self._staged
        ):
            number += 1
        if number and self.stage is not None:
            del self._starts[:number]
            del self._parts[:number]

    def _forget_loose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loose, self._loose_bytes = [], 0

    def _wake(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


OpenStored = Callable[[], Awaitable[OpenObject]]


class FeedReader(OpenObject):
    """A growing blob for one reader.

    The last byte of a range is held back until the digest is verified. If the digest is wrong, or
    the fill fails, `stream` raises.
    """

    def __init__(self, feed: Feed, reader: BlobReader, open_stored: OpenStored) -> None:
        """Read from `feed`; `open_stored` opens the blob once it is stored."""
        self._feed = feed
        self._reader = reader
        self._open_stored = open_stored
        self._seen_rewinds = len(feed.rewinds)
        self._staged: StagedParts | None = None
        self._whole: OpenObject | None = None
        feed.readers.add(self)

    @property
    def length(self) -> int | None:
        """Return None: the blob grows."""
        return None

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:  # noqa: ARG002
        """Return None, as ``sendfile`` does not wait for bytes."""
        return None

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:  # noqa: ARG002
        """Raise ValueError: a thread must not wait for bytes."""
        raise ValueError("growing bytes are read by stream alone")

    async def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order, as its bytes arrive.

        Raises:
            PlatformError: the fill has failed.
            Rewound: bytes that were already yielded are fetched again.
            StoreUnavailable: the staged file cannot be read.

        """
        if stop is None:
            assert self._feed.size is not None
            stop = self._feed.size
        offset = start
        async for part in self.growing(start, stop):
            offset += len(part)
            yield part
        if offset < stop:
            async for part in (await self.whole()).stream(offset, stop):
                yield part

    async def growing(self, start: int, stop: int) -> AsyncIterator[bytes]:
        """Like `stream`, but once the fill has ended, stop before bytes that only the store has."""
        feed = self._feed
        offset = start
        while offset < stop:
            self._check(start, offset)
            until = stop if feed.is_right else stop - 1
            part = feed.part_at(offset) if offset < until else b""
            if feed.is_right and not part:
                return  # the blob is stored, though the feed may not have had all of it
            if part is None:
                part = await self._staged_part(offset, feed.first)
                self._check(start, offset)
            elif not part:
                await feed.changed()
            if part:
                part = part[: until - offset]
                offset += len(part)
                yield part

    async def whole(self) -> OpenObject:
        """Return the stored blob; `aclose` releases it."""
        if self._whole is None:
            self._whole = await self._open_whole()
        return self._whole

    async def aclose(self) -> None:
        """Leave the feed, and close the files that only this reader uses."""
        self._feed.readers.discard(self)
        staged, self._staged = self._staged, None
        whole, self._whole = self._whole, None
        try:
            if staged is not None:
                await staged.leave()
        finally:
            if whole is not None:
                await whole.aclose()

    async def _open_whole(self) -> OpenObject:
        """Open the stored blob, or its staged bytes if they are not recorded yet."""
        stage = self._feed.stage
        try:
            return await self._open_stored()
        except BlobUnknown:
            if stage is None:
                raise
            with suppress(ObjectUnknown):
                opened = await self._reader.open_staged(*stage)
                if opened.length is not None:
                    return opened
                await opened.aclose()
            raise

    def _check(self, start: int, offset: int) -> None:
        """Raise if the fill has failed, or bytes yielded since `start` are being fetched again."""
        feed = self._feed
        if feed.failure is not None:
            raise feed.failure
        if any(max(start, rewound) < offset for rewound in feed.rewinds[self._seen_rewinds :]):
            raise Rewound("bytes that were sent are fetched again", retry_after=1)
        self._seen_rewinds = len(feed.rewinds)

    async def _staged_part(self, offset: int, staged: int) -> bytes:
        """Return bytes that are no longer in memory; empty if the staged file lacks them too."""
        feed = self._feed
        parts = feed.staged_parts(self._reader)
        if parts is not None:
            await self._join(parts)
            with suppress(ObjectUnknown, StagedDropped):
                return await parts.part_at(offset, staged)
        # The bytes are gone: the fill is about to end, or to use another stage.
        if not feed.has_ended and feed.staged_parts(self._reader) is parts:
            await feed.changed()
        return b""

    async def _join(self, parts: StagedParts) -> None:
        if self._staged is not parts:
            before, self._staged = self._staged, parts
            parts.join()
            if before is not None:
                await before.leave()
