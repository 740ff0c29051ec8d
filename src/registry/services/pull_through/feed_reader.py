"""Read a blob that is being fetched: what has just come from memory, the rest from the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from registry.blobstore.base import (
    BlobReader,
    FileRegion,
    ObjectUnknown,
    OpenObject,
    StagedDropped,
)
from registry.services.pull_through.feed import Feed, Rewound, Stage

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
        self._opened: OpenObject | None = None
        self._opened_at: Stage | None = None

    @property
    def length(self) -> int | None:
        """Return None: it grows."""
        return None

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:  # noqa: ARG002
        """Return None: ``sendfile`` does not wait for bytes."""
        return None

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:  # noqa: ARG002
        """Raise ValueError: a thread must not wait for bytes."""
        raise ValueError("growing bytes are read by stream alone")

    async def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order, as it comes.

        Raises:
            PlatformError: the fill has failed.
            Rewound, StagedDropped: bytes that were given are fetched anew.
            StoreUnavailable: what is staged cannot be read.

        """
        feed = self._feed
        if stop is None:
            assert feed.size is not None
            stop = feed.size
        offset = start
        while offset < stop:
            self._check(start, offset)
            until = stop if feed.is_right else stop - 1
            part = feed.part_at(offset) if offset < until else b""
            if part is None or (feed.is_right and not part):
                # It is stored by now, though not all of it may have come through the feed.
                behind = until if part is not None else min(until, feed.first)
                async for read in self._elsewhere(offset, behind):
                    self._check(start, offset)
                    offset += len(read)
                    yield read
            elif part:
                part = part[: until - offset]
                offset += len(part)
                yield part
            else:
                await feed.changed()

    async def aclose(self) -> None:
        """Release the bytes."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()

    def _check(self, start: int, offset: int) -> None:
        """Raise if the fill has failed, or what was given since `start` is taken back."""
        feed = self._feed
        if feed.failure is not None:
            raise feed.failure
        if any(max(start, rewound) < offset for rewound in feed.rewinds[self._seen_rewinds :]):
            raise Rewound("bytes that were sent are fetched again")
        self._seen_rewinds = len(feed.rewinds)

    async def _elsewhere(self, offset: int, until: int) -> AsyncIterator[bytes]:
        """Yield a range that is not in memory, up to a change of where it is staged."""
        stage = self._feed.stage
        if self._opened is None or self._opened_at != stage:
            await self.aclose()
            self._opened = await self._open(stage)
            self._opened_at = stage
        try:
            async for part in self._opened.stream(offset, until):
                yield part
        except StagedDropped:
            if not self._feed.is_right:
                raise
            # The account has kept other bytes with this digest.
            await self.aclose()
            self._opened = await self._open_stored()

    async def _open(self, stage: Stage | None) -> OpenObject:
        if not self._feed.is_right and stage is not None:
            try:
                return await self._reader.open_staged(*stage)
            except ObjectUnknown:
                if not self._feed.is_right:
                    raise StagedDropped("the staged bytes are gone") from None
        return await self._open_stored()
