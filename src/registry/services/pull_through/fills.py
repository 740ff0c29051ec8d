"""The fills that readers of this process wait for: one per repository and digest.

Two repositories that want the same blob do not share a fill: one's upstream may have the blob while
the other's does not. The second fill follows the first (reads the bytes that it stages) once its
own upstream has confirmed the blob.

The time that a fill waits for its upstream is limited. The upstream has some seconds to begin, and
may pause. But in total, even over repeated requests, a fill waits no longer than those seconds plus
the time that its bytes take at the lowest allowed rate. A fill without readers must be faster. Only
waiting for the upstream counts, not the local disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from cloudcore.errors import Unavailable
from registry.oci.digest import Digest, digest_of
from registry.oci.reference import Name
from registry.services.pull_through.concurrency import UpstreamSlots
from registry.services.pull_through.feed import Feed
from registry.upstream.base import Remote, UpstreamUnreachable

_SLOT_SECONDS: Final = 30
"""Seconds for which a fill waits for a slot."""


class FillSource(NamedTuple):
    """A blob of an upstream repository, and the cached repository to fill."""

    name: Name
    repository_id: str
    account_id: str
    digest: Digest
    remote: Remote
    size: int | None = None
    """The size that a cached manifest lists; None if none refers to the blob."""
    is_known: bool = False
    """True if the upstream is known to have the blob: a manifest lists it, or the upstream said so.

    If not, the repository gets only bytes that are fetched for itself.
    """

    @property
    def key(self) -> str:
        """Return the key of the blob's fill."""
        return fill_key(self.remote.rule_id, self.remote.origin, self.digest)


def fill_key(rule_id: str, origin: str, digest: Digest) -> str:
    """Return the key under which the repositories of a rule share the fill of a blob.

    Another rule has another key. A rule whose upstream changes has a new key, too, as the new
    upstream may lack the blob.
    """
    return digest_of(f"{rule_id} {origin} {digest}".encode())


class PaceLimits(NamedTuple):
    """The lowest allowed average rates of a fill, in bytes per second, and extra waiting times."""

    begin_seconds: float = 60
    """Seconds that a fill may wait beyond what the rate allows: for the first byte, in pauses."""
    lowest_rate: int = 8 * 1024
    """The lowest rate, averaged over all bytes of the fill."""
    unread_begin_seconds: float = 10
    unread_lowest_rate: int = 128 * 1024
    """Like the two above, for the time since the last reader has left."""


PACE_LIMITS: Final = PaceLimits()


class TooSlow(UpstreamUnreachable):
    """The upstream is too slow; the fill ends instead of requesting the rest."""

    stage = "manifest"


class FillUnread(Exception):
    """The fill has had no readers for some time, and is slow."""


class FillPace:
    """Measures how long one fill waits for its upstream, and ends it if it is too slow."""

    def __init__(self, feed: Feed, limits: PaceLimits) -> None:
        self._feed = feed
        self._limits = limits
        self._all = _Spent()
        self._unread = _Spent()

    def add(self, count: int) -> None:
        """Count new bytes."""
        self._all.received += count
        self._unread.received += count

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the time in the with block as waiting; the block must have a timeout of its own."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            waited = asyncio.get_running_loop().time() - began
            self._all.waited += waited
            self._unread.waited += waited

    async def next_of(self, chunks: AsyncIterator[bytes]) -> bytes:
        """Return the next bytes, or empty bytes at the end; wait no longer than the limits allow.

        Raise `TooSlow` if the average rate is too low, `FillUnread` if it is too low for a fill
        without readers.
        """
        limits = self._limits
        left = self._all.left(limits.begin_seconds, limits.lowest_rate)
        if self._feed.is_read:
            self._unread, unread_left = _Spent(), left
        else:
            unread = limits.unread_begin_seconds, limits.unread_lowest_rate
            unread_left = self._unread.left(*unread)
        try:
            with self.counted():
                async with asyncio.timeout(min(left, unread_left)):
                    return await anext(chunks, b"")
        except TimeoutError:
            if unread_left < left:
                raise FillUnread from None
            words = f"it sent fewer than {limits.lowest_rate} bytes per second, on average"
            raise TooSlow(words) from None


class _Spent:
    """The seconds waited so far, and the bytes received meanwhile."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.received = 0

    def left(self, begin_seconds: float, rate: int) -> float:
        """Return how many more seconds the fill may wait."""
        return max(0.0, begin_seconds + self.received / rate - self.waited)


class Fills:
    """The feeds of one process, each with the task that fetches its bytes.

    The first reader starts the task, which continues for a while without readers (`FillPace`).
    """

    def __init__(self, limits: PaceLimits = PACE_LIMITS) -> None:
        """Enforce these limits on upstreams."""
        self.limits = limits
        self._running: dict[tuple[str, Hashable], Feed] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = UpstreamSlots(_SLOT_SECONDS)

    def join(self, source: FillSource, run: Callable[[Feed], Coroutine[Any, Any, None]]) -> Feed:
        """Return the feed of a repository's blob; for a new one, start `run` once there is a slot.

        The feed fails if no slot is free in time.
        """
        key = source.repository_id, source.key
        feed = self._running.get(key)
        if feed is not None and not feed.is_given_up:
            return feed
        feed = self._running[key] = Feed()
        task = asyncio.create_task(self._run(source, feed, run))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._end(key, feed, done))
        return feed

    async def settled(self) -> None:
        """Wait until the running fetches have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Cancel all fills; another worker or a later process continues them."""
        for task in self._tasks:
            task.cancel()
        await self.settled()

    async def _run(
        self, source: FillSource, feed: Feed, run: Callable[[Feed], Coroutine[Any, Any, None]]
    ) -> None:
        is_listed = source.size is not None
        try:
            async with self._slots.slot(
                source.account_id, source.remote.origin, is_listed=is_listed
            ):
                await run(feed)
        except Unavailable as error:
            feed.fail(error)

    def _end(self, key: tuple[str, Hashable], feed: Feed, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._running.get(key) is feed:
            del self._running[key]
        feed.fail(Unavailable("the fetch was broken off; try again", retry_after=5))
