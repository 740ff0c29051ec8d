"""Bound the bytes of request bodies that a process keeps in memory at once.

Bodies that go to a file are not kept; documents and forms are. What counts is what arrived,
not what was declared. Without a bound, 150 clients that hold back the end of 4 MiB keep 600 MiB.

A bound alone would let sixteen of them keep everybody else out. So

- small bodies have room of their own: an attacker needs 256 connections to fill it;
- where room runs out, the oldest incomplete body gives way after `PATIENCE_SECONDS`: an honest
  client needs less, and one that stalls keeps its room only until another body needs it;
- a complete body never gives way, since its request ends soon.

A body that gives way or finds no room is answered 503 with ``Retry-After``.

Large bodies take turns: otherwise the event loop would read a piece of each before it serves the
next small request.
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
"""The largest body that counts as small. A usual document has some 2 KiB."""
SMALL_ROOM: Final = 16 * MIB
LARGE_ROOM: Final = 48 * MIB
PATIENCE_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 5
TURN_SECONDS: Final = 0.001
"""From one turn to the next. A piece of up to 256 KiB takes the event loop some 0.1 ms: so reading
large bodies leaves most of its time to others, and still takes 100 MB in a second."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class NoRoom(Unavailable):
    """The process already keeps as many bytes of bodies as it may."""

    def __init__(self) -> None:
        super().__init__(
            "too many request bodies are arriving at once; send the request again later",
            retry_after=RETRY_SECONDS,
        )


class Room:
    """The bytes for bodies of one size class, and the incomplete bodies, oldest first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self.arriving: dict[Hold, float] = {}
        """Incomplete bodies, with the moment each began."""


class ReadTurns:
    """Turns to read a piece of a large body: one in `TURN_SECONDS`."""

    def __init__(self, seconds: float = TURN_SECONDS) -> None:
        self._seconds = seconds
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._given = float("-inf")

    async def take(self) -> None:
        """Wait for a turn, first come, first served."""
        loop = asyncio.get_running_loop()
        if self._waiting and self._waiting[0].get_loop() is not loop:
            self._waiting.clear()  # their loop has ended
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            delay = self._given + self._seconds - loop.time()
            if delay > 0:
                loop.call_later(delay, self._give, loop)
            else:
                loop.call_soon(self._give, loop)
        await turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # otherwise that waiter was cancelled
                turn.set_result(None)
                self._given = loop.time()
                break
        if self._waiting:
            loop.call_later(self._seconds, self._give, loop)


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
        self.turns = ReadTurns()

    def hold(self) -> Hold:
        """Return the account of one body; its bytes are given back at the end of a ``with``."""
        return Hold(self)

    @property
    def used(self) -> int:
        """Return how many bytes are kept."""
        return self.small.used + self.large.used


class Hold:
    """What is kept of one body."""

    __slots__ = ("_budget", "_bytes", "_is_over", "_room", "_waiting")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._room = budget.small
        self._bytes = 0
        self._is_over = False
        self._waiting: asyncio.Timeout | None = None

    def __enter__(self) -> Self:
        """Begin with nothing kept."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give all bytes back."""
        self._leave()

    def metered(self, receive: Receive, declared: int | None = None) -> Receive:
        """Return a `receive` that counts what arrives on this account.

        A body whose `declared` bytes make it a large one takes turns from its first piece.

        What is returned raises `NoRoom` when there is no room, or when this body must give way.
        """

        async def metered() -> Message:
            if self._is_over:
                raise NoRoom
            is_large = (declared or 0) > SMALL_BYTES or self._bytes > SMALL_BYTES
            if self._bytes:
                message = await self._next_or_give_way(receive, is_large=is_large)
            else:  # nothing is kept that another could want
                if is_large:
                    await self._budget.turns.take()
                message = await receive()
                if self._takes_whole(message):
                    return message
            if self._is_over:  # the message and the demand to give way came in the same turn
                raise NoRoom
            self._take(len(message.get("body", b"")))
            if not message.get("more_body", False):
                self._room.arriving.pop(self, None)
            return message

        return metered

    async def _next_or_give_way(self, receive: Receive, *, is_large: bool) -> Message:
        try:
            async with asyncio.timeout(None) as self._waiting:
                if is_large:
                    await self._budget.turns.take()
                return await receive()
        except TimeoutError:
            if self._is_over:
                raise NoRoom from None
            raise
        finally:
            self._waiting = None

    def _takes_whole(self, message: Message) -> bool:
        """Keep a small body that came in one message, as most do, and return True if it did.

        It is complete at once, so it is never among those that arrive.
        """
        count, room = len(message.get("body", b"")), self._budget.small
        if message.get("more_body") or count > SMALL_BYTES or room.used + count > room.size:
            return False
        room.used += count
        self._room, self._bytes = room, count
        return True

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
        """Give all bytes back, and wake the reader of the body."""
        self._leave()
        self._is_over = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    def _leave(self) -> None:
        self._room.used -= self._bytes
        self._bytes = 0
        self._room.arriving.pop(self, None)


BODIES: Final = BodyBudget()
"""The budget of this process."""
