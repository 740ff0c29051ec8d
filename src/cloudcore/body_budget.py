"""How many bytes of request bodies a process keeps in memory at once, and who gives way.

Bodies that go to a file are not kept; manifests, forms and JSON are. What counts is what arrived,
not what was declared. Without a bound, 150 clients that hold back the end of 4 MiB keep 600 MiB.

A bound alone would let sixteen of them keep everybody else out. So

- small bodies have room of their own: to take it from others, one needs 256 connections;
- where room runs out, the body that began first gives way, once it had `PATIENCE_SECONDS`: an
  honest client needs less, and one that holds back keeps its place only until somebody needs it;
- a body that is whole never gives way: it is about to be done with.

Who gives way, or finds no room, is answered 503 with ``Retry-After``.

Large bodies take turns, too: the event loop would else read a piece of each of them before it
looks at anybody's small request again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Self

from cloudcore.errors import Unavailable

KIB: Final = 1024
MIB: Final = 1024 * KIB

SMALL_BYTES: Final = 64 * KIB
"""Up to here a body counts as small; a usual manifest has some 2 KiB."""
SMALL_ROOM: Final = 16 * MIB
LARGE_ROOM: Final = 48 * MIB
PATIENCE_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 5
TURNS: Final = 2
"""How many pieces of large bodies, of 256 KiB, the event loop reads between two looks around."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class NoRoom(Unavailable):
    """The process keeps as many bytes of bodies as it may."""

    def __init__(self) -> None:
        super().__init__(
            "too many request bodies are arriving at once; send this one again",
            retry_after=RETRY_SECONDS,
        )


class Room:
    """The bytes for bodies of one sort, and the bodies that still arrive, in their order."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self.arriving: dict[Hold, float] = {}
        """Each with the moment it came."""


class Turns:
    """Who may read a piece of a large body: so many in each iteration of the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a turn; they come in the order they were asked for."""
        loop = asyncio.get_running_loop()
        if self._waiting and self._waiting[0].get_loop() is not loop:
            self._waiting.clear()  # that loop has ended, and all who waited with it
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._give, loop)
        await turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(TURNS, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.done():  # else whoever waited was cancelled
                turn.set_result(None)
        if self._waiting:
            loop.call_soon(self._give, loop)


class BodyBudget:
    """The bytes of bodies that a process keeps."""

    def __init__(
        self,
        small: int = SMALL_ROOM,
        large: int = LARGE_ROOM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.small = Room(small)
        self.large = Room(large)
        self.clock = clock
        self.turns = Turns()

    def hold(self) -> Hold:
        """Return the account of one body; its bytes are given back at the end of a ``with``."""
        return Hold(self)

    @property
    def used(self) -> int:
        """Return how many bytes are kept."""
        return self.small.used + self.large.used


class Hold:
    """What is kept of one body."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._room = budget.small
        self._bytes = 0
        self._is_over = False
        self._waiting: asyncio.Timeout | None = None

    def __enter__(self) -> Self:
        """Begin; nothing is kept yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give all back."""
        self._leave()

    def metered(self, receive: Receive, declared: int | None = None) -> Receive:
        """Return `receive`, with what comes by it on this account.

        A body of more `declared` bytes than a small one takes turns from its first piece on.

        What is returned raises `NoRoom` when there is none, or when this body has to give way.
        """

        async def metered() -> Message:
            self._check()
            is_large = max(self._bytes, declared or 0) > SMALL_BYTES
            if not self._bytes:  # nothing is kept that another could want
                message = await self._next(receive, is_large=is_large)
            else:
                message = await self._next_or_give_way(receive, is_large=is_large)
            self._check()  # the message and the word to give way may come in one turn
            self._take(len(message.get("body", b"")))
            if not message.get("more_body", False):
                self._room.arriving.pop(self, None)
            return message

        return metered

    async def _next(self, receive: Receive, *, is_large: bool) -> Message:
        if is_large:
            await self._budget.turns.take()
        return await receive()

    async def _next_or_give_way(self, receive: Receive, *, is_large: bool) -> Message:
        try:
            async with asyncio.timeout(None) as self._waiting:
                return await self._next(receive, is_large=is_large)
        except TimeoutError:
            self._check()
            raise
        finally:
            self._waiting = None

    def _check(self) -> None:
        if self._is_over:
            raise NoRoom from None

    def _take(self, count: int) -> None:
        """Keep `count` bytes more."""
        if not count:
            return
        held = self._bytes + count
        room = self._budget.small if held <= SMALL_BYTES else self._budget.large
        if room is not self._room:
            self._leave()
            self._room = room
        room.used += held - self._bytes
        self._bytes = held
        now = self._budget.clock()
        room.arriving.setdefault(self, now)
        while room.used > room.size:
            first, since = next(iter(room.arriving.items()), (self, now))
            if first is self or now - since < PATIENCE_SECONDS:
                self._leave()
                raise NoRoom
            first.give_way()

    def give_way(self) -> None:
        """Give all back, and let whoever waits for more of the body know."""
        self._leave()
        self._is_over = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    def _leave(self) -> None:
        self._room.used -= self._bytes
        self._bytes = 0
        self._room.arriving.pop(self, None)


BODIES: Final = BodyBudget()
"""That of this process."""
