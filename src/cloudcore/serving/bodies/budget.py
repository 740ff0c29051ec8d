"""Limit the memory for request bodies in a process.

Bodies that go to a file take no memory; documents and forms do. Bytes count when they arrive, not
when declared. Without a limit, 150 clients that withhold the end of 4 MiB would occupy 600 MiB.

A limit alone would let sixteen such clients lock out everyone else. So

- small bodies have a limit of their own: an attacker needs 256 connections to reach it;
- when a limit is reached, the oldest incomplete body is dropped if it began `PATIENCE_SECONDS`
  ago: an honest client needs less time, and a stalled one keeps its memory only until another body
  needs it;
- a complete body is never dropped, since its request ends soon.

A request whose body is dropped or finds no memory is answered 503 with ``Retry-After``.

Large bodies take turns: otherwise the event loop would read a piece of each before it serves the
next small request.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from cloudcore.errors import Unavailable
from cloudcore.serving.asgi import Message, Receive
from cloudcore.serving.limits import KIB, MIB

SMALL_BYTES: Final = 64 * KIB
"""Maximum size of a small body. A typical document has some 2 KiB."""
SMALL_ROOM: Final = 16 * MIB
LARGE_ROOM: Final = 48 * MIB
PATIENCE_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 5
TURN_SECONDS: Final = 0.001
"""Time between two turns. A piece of up to 256 KiB takes the event loop some 0.1 ms, so large
bodies leave it most of its time, and still arrive at up to 100 MB per second."""


class NoRoom(Unavailable):
    """The process has no more memory for request bodies."""

    def __init__(self) -> None:
        super().__init__(
            "too many request bodies are arriving at once; send the request again later",
            retry_after=RETRY_SECONDS,
        )


class BodyRoom:
    """The memory for bodies of one size class, and the incomplete bodies, oldest first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self.arriving: dict[BodyHold, float] = {}
        """Incomplete bodies with their start times."""


class ReadTurns:
    """Turns at reading a piece of a large body: one every `TURN_SECONDS`."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._given = float("-inf")

    async def take(self) -> None:
        """Wait for a turn, in FIFO order."""
        loop = asyncio.get_running_loop()
        if self._waiting and self._waiting[0].get_loop() is not loop:
            self._waiting.clear()  # their loop has ended
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            delay = self._given + TURN_SECONDS - loop.time()
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
            loop.call_later(TURN_SECONDS, self._give, loop)


class BodyBudget:
    """The memory budget of a process for request bodies."""

    def __init__(
        self,
        small: int = SMALL_ROOM,
        large: int = LARGE_ROOM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.small = BodyRoom(small)
        self.large = BodyRoom(large)
        self.clock = clock
        self.turns = ReadTurns()

    def hold(self) -> BodyHold:
        """Return a context manager that counts one body's bytes, and releases them at its end."""
        return BodyHold(self)

    @property
    def used(self) -> int:
        """Return the number of bytes in use."""
        return self.small.used + self.large.used


class BodyHold:
    """The memory in use by one body."""

    __slots__ = ("_budget", "_bytes", "_is_over", "_room", "_waiting")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._room = budget.small
        self._bytes = 0
        self._is_over = False
        self._waiting: asyncio.Timeout | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def metered(self, receive: Receive, declared: int | None = None) -> Receive:
        """Return a `receive` that counts the bytes that arrive.

        A large body takes turns (`ReadTurns`): from its first piece if its `declared` length is
        large, otherwise once more have arrived than `SMALL_BYTES`.

        The returned function raises `NoRoom` if there is no memory left or this body was dropped.
        """

        async def metered() -> Message:
            if self._is_over:
                raise NoRoom
            is_large = (declared or 0) > SMALL_BYTES or self._bytes > SMALL_BYTES
            if self._bytes:
                message = await self._next_or_give_way(receive, is_large=is_large)
            else:  # no bytes that another body could need
                if is_large:
                    await self._budget.turns.take()
                message = await receive()
                if self._takes_whole(message):
                    return message
            if self._is_over:  # the message and the call of give_way came in one turn of the loop
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
        """Count a small body that arrived in one message, as most do; otherwise return False.

        Such a body is complete at once, so it is never listed as incomplete.
        """
        count, room = len(message.get("body", b"")), self._budget.small
        if message.get("more_body") or count > SMALL_BYTES or room.used + count > room.size:
            return False
        room.used += count
        self._room, self._bytes = room, count
        return True

    def _take(self, count: int) -> None:
        """Count `count` more bytes; raise `NoRoom` if they do not fit."""
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
        """Drop the body: release all its bytes and wake its reader."""
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
