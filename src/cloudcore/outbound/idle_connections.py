"""Connections that wait for a further request to their origin."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final

from cloudcore.outbound.http_connection import HttpConnection

IDLE_SECONDS: Final = 20.0
"""Less than servers usually keep an idle connection for."""


class IdleConnections:
    """The idle connections of one client, by origin."""

    def __init__(self, max_per_origin: int) -> None:
        self._max_per_origin = max_per_origin
        self._kept: defaultdict[str, list[tuple[HttpConnection, asyncio.TimerHandle]]] = (
            defaultdict(list)
        )

    def take(self, origin: str) -> HttpConnection | None:
        """Return the connection that was used last and still stands, or None."""
        kept = self._kept.get(origin, [])
        while kept:
            connection, timer = kept.pop()
            timer.cancel()
            if not kept:
                self._kept.pop(origin, None)
            if connection.is_reusable:
                return connection
            connection.abort()
        return None

    def give_back(self, origin: str, connection: HttpConnection) -> None:
        """Keep a connection if its answer was read to the end, or close it."""
        kept = self._kept[origin]
        if not connection.is_reusable or len(kept) >= self._max_per_origin:
            connection.abort()
            if not kept:
                del self._kept[origin]
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(IDLE_SECONDS, self._drop, origin, connection)
        kept.append((connection, timer))

    def close(self) -> None:
        """Close all."""
        for kept in self._kept.values():
            for connection, timer in kept:
                timer.cancel()
                connection.abort()
        self._kept.clear()

    def _drop(self, origin: str, connection: HttpConnection) -> None:
        connection.abort()
        left = [each for each in self._kept.pop(origin, []) if each[0] is not connection]
        if left:
            self._kept[origin] = left
