"""How much a process asks of upstreams at once, and how much of that for one account."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from cloudcore.errors import Unavailable

MOST_AT_ONCE: Final = 64
"""Each has a connection and a few MiB in memory."""
MOST_OF_ACCOUNT: Final = 48
"""The upstreams that an account names may be slow, and others want to go on."""


class NoTurn(Unavailable):
    """Too much is being fetched for long."""


class Turns:
    """The turns of one process; the earlier one comes first."""

    def __init__(self, wait_seconds: float) -> None:
        """Let each wait at most so long."""
        self._wait_seconds = wait_seconds
        self._all = asyncio.Semaphore(MOST_AT_ONCE)
        self._of: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, account: str) -> AsyncIterator[None]:
        """Wait for a turn of an account, and keep it in the block.

        Raises:
            NoTurn: none came in time.

        """
        own = self._of.setdefault(account, asyncio.Semaphore(MOST_OF_ACCOUNT))
        self._users[account] += 1
        taken: list[asyncio.Semaphore] = []
        try:
            try:
                async with asyncio.timeout(self._wait_seconds):
                    for each in (own, self._all):
                        await each.acquire()
                        taken.append(each)
            except TimeoutError:
                raise NoTurn("too much is being fetched from upstreams", retry_after=5) from None
            yield
        finally:
            for each in taken:
                each.release()
            self._users[account] -= 1
            if not self._users[account]:
                del self._users[account], self._of[account]
