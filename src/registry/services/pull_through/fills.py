"""The fills that readers of this process wait for: one per repository and digest.

Two repositories that want the same blob do not share one: what the upstream of one has, that of the
other may not have. The second fill follows the first, once its own upstream has said so.

How long a fill waits for its upstream: as its bytes come, on average over all of it.
An upstream has a while to begin, and may pause. But the seconds that a fill has waited are never
more than that while and what its bytes take at the lowest rate, however they are dealt out, and
however often the upstream breaks off and is asked again. Nobody waits for a fill without readers,
so that must be faster. Only waiting counts: a slow disk of ours is no fault of the upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from cloudcore.errors import Unavailable
from registry.oci.digest import Digest, digest_of
from registry.oci.reference import Name
from registry.services.pull_through.concurrency import Turns
from registry.services.pull_through.feed import Feed
from registry.upstream.base import Remote, UpstreamUnreachable

_TURN_SECONDS: Final = 30
"""How long a fill waits for its turn."""


class Source(NamedTuple):
    """A blob that a repository of an upstream has, and the cached repository that it is for."""

    name: Name
    repository_id: str
    account_id: str
    digest: Digest
    remote: Remote
    size: int | None = None
    """As a cached manifest says; None if none refers to it."""
    is_known: bool = False
    """True if the upstream is known to have it, by a manifest or since it was asked.

    If not, the repository gets only what is fetched for itself.
    """

    @property
    def key(self) -> str:
        """Return the key of its fill."""
        return fill_key(self.remote.rule_id, self.remote.origin, self.digest)


def fill_key(rule_id: str, origin: str, digest: Digest) -> str:
    """Return the key under which the repositories of a rule share the fill of a blob.

    Another rule has another one, and so has the same rule with another upstream: what one upstream
    sends, the other may not have.
    """
    return digest_of(f"{rule_id} {origin} {digest}".encode())


class PaceLimits(NamedTuple):
    """How slow an upstream may be; bytes per second, and seconds."""

    begin_seconds: float = 60
    """What it may wait on top: to begin, and in pauses."""
    lowest_rate: int = 8 * 1024
    """On average over all that the fill gets."""
    unread_begin_seconds: float = 10
    unread_lowest_rate: int = 128 * 1024
    """The same since the last reader has left."""


PACE_LIMITS: Final = PaceLimits()


class TooSlow(UpstreamUnreachable):
    """It has sent too little for the time; it is not asked again for the rest at once."""

    stage = "manifest"


class FillUnread(Exception):
    """Nobody has read the fill for some time, and it is not fast."""


class FillPace:
    """Watches one fetch of a fill."""

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
        """Count the time in the block, which has a limit of its own, as waiting."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            waited = asyncio.get_running_loop().time() - began
            self._all.waited += waited
            self._unread.waited += waited

    async def next_of(self, chunks: AsyncIterator[bytes]) -> bytes:
        """Return the next bytes, or none at the end; wait no longer than the average allows.

        Raises:
            TooSlow: it has become too low.
            FillUnread: it is too low for a fill without readers.

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
    """The seconds that were waited for so many bytes."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.received = 0

    def left(self, begin_seconds: float, rate: int) -> float:
        """Return for how many seconds more the bytes so far may be waited."""
        return max(0.0, begin_seconds + self.received / rate - self.waited)


class Fills:
    """The feeds of one process, each with the task that brings its bytes.

    The first reader starts it. It goes on for a while without one (`FillPace`).
    """

    def __init__(self, limits: PaceLimits = PACE_LIMITS) -> None:
        """Let upstreams be as slow as the limits say."""
        self.limits = limits
        self._running: dict[tuple[str, Hashable], Feed] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = Turns(_TURN_SECONDS)

    def join(
        self,
        source: Source,
        run: Callable[[Feed], Coroutine[Any, Any, None]],
    ) -> Feed:
        """Return the feed of a repository's blob; `run` it in its turn, unless that began.

        The feed fails if too many blobs are being fetched for long.
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
        """Wait until the present fetches have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Break off all fills; another worker, or a later process, goes on with them."""
        for task in self._tasks:
            task.cancel()
        await self.settled()

    async def _run(
        self, source: Source, feed: Feed, run: Callable[[Feed], Coroutine[Any, Any, None]]
    ) -> None:
        is_listed = source.size is not None
        try:
            async with self._turns.turn(
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
