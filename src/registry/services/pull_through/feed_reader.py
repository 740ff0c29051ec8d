"""Read a blob that is being fetched: what has just come from memory, the rest from the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

from registry.blobstore.base import (
    BlobReader,
    FileRegion,
    ObjectUnknown,
    OpenObject,
    StagedDropped,
)
from registry.errors import BlobUnknown
from registry.services.pull_through.feed import Feed, Rewound
from registry.services.pull_through.staged_parts import StagedParts

OpenStored = Callable[[], Awaitable[OpenObject]]


class FeedReader(OpenObject):
    """A blob that grows, for one reader.

    The last byte of a range is held back until the digest is known to be right. If it is wrong, or
    the fill fails, `stream` raises.
    """

    def __init__(self, feed: Feed, reader: BlobReader, open_stored: OpenStored) -> None:
        """Read `feed`; `open_stored` opens the blob once it is stored."""
        self._feed = feed
        self._reader = reader
        self._open_stored = open_stored
        self._seen_rewinds = len(feed.rewinds)
        self._staged: StagedParts | None = None
        self._whole: OpenObject | None = None
        feed.readers.add(self)

    @property
    def length(self) -> int | None:
        """Return None, as it grows."""
        return None

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:  # noqa: ARG002
        """Return None, as ``sendfile`` does not wait for bytes."""
        return None

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:  # noqa: ARG002
        """Raise ValueError: a thread must not wait for bytes."""
        raise ValueError("growing bytes are read by stream alone")

    async def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order, as it comes.

        Raises:
            PlatformError: the fill has failed.
            Rewound: bytes that were given are fetched anew.
            StoreUnavailable: what is staged cannot be read.

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
        """Yield a range as `stream` does, but not what only the store has once the fill ended."""
        feed = self._feed
        offset = start
        while offset < stop:
            self._check(start, offset)
            until = stop if feed.is_right else stop - 1
            part = feed.part_at(offset) if offset < until else b""
            if feed.is_right and not part:
                return  # it is stored by now, though not all of it may have come through the feed
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
        """Return the blob as it is stored; `aclose` releases it."""
        if self._whole is None:
            self._whole = await self._open_whole()
        return self._whole

    async def aclose(self) -> None:
        """Release the bytes."""
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
        """Open the stored blob; or what was staged, if its worker has not recorded it yet."""
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
        """Raise if the fill has failed, or what was given since `start` is taken back."""
        feed = self._feed
        if feed.failure is not None:
            raise feed.failure
        if any(max(start, rewound) < offset for rewound in feed.rewinds[self._seen_rewinds :]):
            raise Rewound("bytes that were sent are fetched again", retry_after=1)
        self._seen_rewinds = len(feed.rewinds)

    async def _staged_part(self, offset: int, staged: int) -> bytes:
        """Return bytes that are not in memory; none if they are elsewhere by now."""
        feed = self._feed
        parts = feed.staged_parts(self._reader)
        if parts is not None:
            await self._join(parts)
            with suppress(ObjectUnknown, StagedDropped):
                return await parts.part_at(offset, staged)
        # They are gone: an end of the fill follows, or another stage.
        if not feed.has_ended and feed.staged_parts(self._reader) is parts:
            await feed.changed()
        return b""

    async def _join(self, parts: StagedParts) -> None:
        if self._staged is not parts:
            before, self._staged = self._staged, parts
            parts.join()
            if before is not None:
                await before.leave()
