"""Dispatch requests to the application of their plane, lifespan events to the last application."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import getrandbits
from typing import Final

from cloudcore.serving.asgi import Message, Receive, Scope, Send
from cloudcore.serving.counters import Count, Measure, count_nothing, measure_nothing
from cloudcore.serving.kept_answers import KeptAnswers
from cloudcore.serving.planes import Planes

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Hook = Callable[[], Awaitable[None]]

_REQUEST_ID_BITS: Final = 128
_FREE_BITS: Final = (1 << _REQUEST_ID_BITS) - 1 & ~(0xF << 76) & ~(0x3 << 62)
_VERSION_4: Final = 4 << 76 | 0x2 << 62
"""The version, and the variant of RFC 9562 §4.1."""
_LAST_DIGITS: Final = tuple(f"{number:02x}" for number in range(256))


def new_request_id() -> str:
    """Return a random UUID (version 4) as text, at a tenth of the cost of ``str(uuid4())``.

    An id must be unique, but need not be secret. So this makes no system call, and 256 ids in a row
    differ only in the last two digits.
    """
    return next(_request_ids)


def _new_request_ids() -> Iterator[str]:
    while True:
        digits = f"{getrandbits(_REQUEST_ID_BITS) & _FREE_BITS | _VERSION_4:032x}"
        groups = digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:-2]
        start = "-".join(groups)
        for end in _LAST_DIGITS:
            yield start + end


def _begin_request_ids() -> None:
    global _request_ids  # noqa: PLW0603 - a forked process must not continue those of its parent
    _request_ids = _new_request_ids()


_request_ids: Iterator[str]
_begin_request_ids()
os.register_at_fork(after_in_child=_begin_request_ids)


class Dispatcher:
    """An ASGI application that dispatches to one application per plane, on any server.

    The plane is determined by the host and the raw path, before the path is decoded or normalised.
    Every request gets, in ``scope["state"]``, a ``request_id``, which responses repeat, the number
    of its ``plane``, and the event `ending`.
    """

    def __init__(
        self,
        planes: Planes,
        applications: Sequence[Application],
        *,
        startup: Hook | None = None,
        shutdown: Hook | None = None,
    ) -> None:
        """Dispatch requests of the n-th plane to the n-th application.

        The last application gets the lifespan events; `startup` runs before its startup and
        `shutdown` after its shutdown.
        """
        if len(applications) != len(planes.planes):
            raise ValueError("there must be one application for each plane")
        self.planes = planes
        self._applications = tuple(applications)
        self._startup = startup
        self._shutdown = shutdown
        self.on_event: Count = count_nothing
        """Called with the key and amount of a `CountedEvent`; set by the server."""
        self.kept: KeptAnswers | None = None
        """Answers that the server may repeat by itself; set at the application's start."""
        self.leave: Callable[[], None] = lambda: None
        """Called when the server is told to stop but still serves for a while; must not block."""
        self.ending = asyncio.Event()
        """Set when the server takes no more requests, so that long polls end."""
        self.measure: Measure = measure_nothing
        """Measures the gauges of the application; the server calls it at a scrape."""

    def count(self, key: str, amount: int) -> None:
        """Count an event."""
        self.on_event(key, amount)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the scope to the application of its plane."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        path = scope.get("raw_path") or scope["path"].encode()
        server = scope.get("server")
        plane = self.planes.find(path, scope["headers"], server[1] if server else None)
        state = scope.setdefault("state", {})
        state["request_id"] = new_request_id()
        state["plane"] = plane
        state["ending"] = self.ending
        await self._applications[plane](scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the last application's lifespan with the hooks around it."""
        started = False

        async def receive_after_startup() -> Message:
            nonlocal started
            message = await receive()
            if message["type"] == "lifespan.startup" and self._startup is not None:
                await self._startup()
            started = started or message["type"] == "lifespan.startup"
            return message

        async def send_after_shutdown(message: Message) -> None:
            nonlocal started
            if message["type"] != "lifespan.startup.complete" and started:
                started = False
                if self._shutdown is not None:
                    await self._shutdown()
            await send(message)

        await self._applications[-1](scope, receive_after_startup, send_after_shutdown)
