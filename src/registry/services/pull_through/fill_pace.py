"""How long a fill waits for its upstream: as its bytes come, on average over all of it.

An upstream has a while to begin, and may pause. But the seconds that a fill has waited are never
more than that while and what its bytes take at the lowest rate, however they are dealt out, and
however often the upstream breaks off and is asked again. Nobody waits for a fill without readers,
so that must be faster. Only waiting counts: a slow disk of ours is no fault of the upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from registry.services.pull_through.feed import Feed
from registry.upstream.base import UpstreamUnreachable


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
