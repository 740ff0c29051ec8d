"""The state shared by the connections of one worker process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from cloudcore.serving.asgi import UNIT_BYTES
from cloudcore.serving.bodies.bulk import BulkPool
from cloudcore.serving.http.response import HeaderNames
from cloudcore.serving.limits import ServerLimits, Unsent
from cloudcore.serving.planes import Planes
from cloudcore.serving.tls.stream import MOST_PIECE_BYTES

if TYPE_CHECKING:
    from cloudcore.serving.http.protocol import HttpProtocol
    from cloudcore.serving.kept_answers import KeptAnswers
    from cloudcore.serving.request_record import RequestRecord
    from cloudcore.serving.tls.files import ServedTls


Observer = Callable[["RequestRecord"], None]
Connections = Collection["HttpProtocol"]


class ServerWorker:
    """The limits, bulk threads and timer of a worker process."""

    def __init__(
        self,
        planes: Planes,
        limits: ServerLimits | None = None,
        *observers: Observer,
        tls: ServedTls | None = None,
    ) -> None:
        """Store `limits`; every observer is called with each finished request."""
        self.tls = tls
        self.planes = planes
        self.limits = limits or ServerLimits()
        self.observers = observers
        self.crowded = False
        """True if there were more than `limits.crowd` connections at the last sweep."""
        self.header_names = HeaderNames()
        self.kept: KeptAnswers | None = None
        """Answers that may be given again without the application."""
        self.unsent = Unsent(self.limits.unsent_bytes)
        self.receivers = BulkPool("bulk-receive", self.limits.receive_threads, UNIT_BYTES)
        self.senders = BulkPool(
            "bulk-send", self.limits.send_threads, 0 if tls is None else MOST_PIECE_BYTES
        )
        self._common: tuple[Any, bytes] = (None, b"")
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, loop: asyncio.AbstractEventLoop, connections: Connections) -> None:
        """Start sweeping `connections` periodically; later calls do nothing."""
        if self._timer is None:
            self._schedule(loop, connections)

    def _schedule(self, loop: asyncio.AbstractEventLoop, connections: Connections) -> None:
        self._timer = loop.call_later(self.limits.sweep_seconds, self._sweep, loop, connections)

    def _sweep(self, loop: asyncio.AbstractEventLoop, connections: Connections) -> None:
        self.sweep(time.monotonic(), connections)
        self._schedule(loop, connections)

    def sweep(self, now: float, connections: Connections) -> None:
        """Enforce the time limits of every connection; `now` is the monotonic clock."""
        self.crowded = len(connections) > self.limits.crowd
        for connection in tuple(connections):
            connection.sweep(now)

    def common_lines(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return uvicorn's default headers as lines; rendered again if `headers` is a new list.

        uvicorn makes a new list each second, for the date.
        """
        if self._common[0] is not headers:
            lines = b"".join(b"%s: %s\r\n" % header for header in headers)
            self._common = (headers, lines)
        return self._common[1]

    def close(self) -> None:
        """Stop the timer and end the bulk threads."""
        if self._timer is not None:
            self._timer.cancel()
        self.receivers.close()
        self.senders.close()
