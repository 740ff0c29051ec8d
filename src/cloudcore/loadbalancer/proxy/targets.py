"""The backends of the embedded proxy: health checks, and the choice of targets.

It imports only the standard library, as it is part of a separate program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

BUFFER_BYTES: Final = 64 * 1024
CONNECT_SECONDS: Final = 3
_HEALTHY_STATUS: Final = re.compile(rb"HTTP/1\.[01] [23][0-9]{2}(?: .*)?\r\n")


class Channel(NamedTuple):
    """The reader and writer of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        """Close the connection after all written bytes are sent."""
        self.writer.close()


class _TargetReader(asyncio.StreamReader):
    """A reader that returns all received bytes before it raises the error of the connection."""

    _error: Exception | None = None

    def set_exception(self, exc: Exception) -> None:
        """End the stream; `read` raises the error at its end."""
        self._error = exc
        self.feed_eof()

    async def read(self, n: int = -1) -> bytes:
        """Return up to `n` bytes; at the end of the stream, raise its error, if it has one."""
        part = await super().read(n)
        if not part and self._error is not None:
            raise self._error
        return part


class _TargetProtocol(asyncio.StreamReaderProtocol):
    """Reads what a target has sent, even if its connection is reset.

    A target that answers before it has read the request's body, as with 413, often resets the
    connection right after its answer. Then asyncio closes the connection when a part of the body
    cannot be written, and leaves the answer in the socket.
    """

    _socket: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        super().connection_made(transport)
        self._socket = transport.get_extra_info("socket")

    def connection_lost(self, exc: Exception | None) -> None:
        """Read the rest, if there was an error."""
        if exc is not None:
            with contextlib.suppress(OSError):
                while part := os.read(self._socket.fileno(), BUFFER_BYTES):
                    self.data_received(part)
        super().connection_lost(exc)


class ProxyTarget:
    """A target of connections, at an address and port or behind a Unix socket."""

    def __init__(self, name: str, place: str | list[Any]) -> None:
        self.name = name
        self.is_draining = False
        self._place = place
        self._is_healthy: bool | None = None
        self._contrary = 0  # checks in a row with the opposite result
        self._health: dict[str, Any] = {}
        self._checks: asyncio.Task[None] | None = None

    def set(self, health: dict[str, Any], *, is_draining: bool) -> None:
        """Apply the health check and the draining state of a plan; the current health stays."""
        self.is_draining = is_draining
        if health != self._health:
            self._health = health
            self.forget()
            self._checks = asyncio.get_running_loop().create_task(self._check_again_and_again())

    def forget(self) -> None:
        """Stop the target's health checks."""
        if self._checks is not None:
            self._checks.cancel()

    @property
    def is_usable(self) -> bool:
        """Return True if the target gets new connections; it does before its first check."""
        return not self.is_draining and self._is_healthy is not False

    @property
    def status(self) -> str:
        """Return `healthy`, `unhealthy`, `draining` or `unknown`."""
        if self.is_draining:
            return "draining"
        return {None: "unknown", True: "healthy", False: "unhealthy"}[self._is_healthy]

    async def connect(self, seconds: float = CONNECT_SECONDS) -> Channel:
        """Open and return a connection; raise `OSError` if that fails or takes too long."""
        loop = asyncio.get_running_loop()
        reader = _TargetReader(BUFFER_BYTES, loop)
        protocol = _TargetProtocol(reader, loop=loop)
        async with asyncio.timeout(seconds):
            if isinstance(self._place, str):
                transport, _ = await loop.create_unix_connection(lambda: protocol, self._place)
            else:
                transport, _ = await loop.create_connection(lambda: protocol, *self._place)
        return Channel(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def _check_again_and_again(self) -> None:
        while True:
            self._take(is_well=await self._is_well())
            await asyncio.sleep(self._health["interval_seconds"])

    def _take(self, *, is_well: bool) -> None:
        if self._is_healthy is None:
            self._is_healthy = is_well
        elif is_well == self._is_healthy:
            self._contrary = 0
        else:
            self._contrary += 1
            if (
                self._contrary
                >= self._health["healthy_threshold" if is_well else "unhealthy_threshold"]
            ):
                self._is_healthy, self._contrary = is_well, 0

    async def _is_well(self) -> bool:
        seconds = self._health["timeout_seconds"]
        channel = None
        try:
            async with asyncio.timeout(seconds):
                channel = await self.connect(seconds)
                if self._health["protocol"] == "tcp":
                    return True
                path = self._health["path"] or "/"
                channel.writer.write(
                    f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
                )
                line = await channel.reader.readuntil(b"\r\n")
        except (OSError, EOFError, asyncio.LimitOverrunError):
            return False
        finally:
            if channel is not None:
                channel.close()
        return _HEALTHY_STATUS.fullmatch(line) is not None


class ProxyBackend:
    """A backend of the proxy: its targets get connections in turn."""

    def __init__(self) -> None:
        self.targets: dict[str, ProxyTarget] = {}
        self._turn = 0

    def set(self, planned: dict[str, Any]) -> None:
        """Apply a backend's plan; targets that remain keep their health and connections."""
        before, self.targets = self.targets, {}
        for one in planned["targets"]:
            name = one["name"]
            target = self.targets[name] = before.pop(name, ProxyTarget(name, one["place"]))
            target.set(planned["health"], is_draining=one["is_draining"])
        for target in before.values():
            target.forget()

    def forget(self) -> None:
        """Stop the health checks of all targets."""
        for target in self.targets.values():
            target.forget()

    def in_turn(self) -> Iterator[ProxyTarget]:
        """Yield each usable target once, in round-robin order."""
        usable = [target for target in self.targets.values() if target.is_usable]
        self._turn = (self._turn + 1) % max(1, len(usable))
        yield from (*usable[self._turn :], *usable[: self._turn])

    async def connect(self) -> Channel | None:
        """Return a connection to the next target that accepts one, or None if none does."""
        for target in self.in_turn():
            with contextlib.suppress(OSError):
                return await target.connect()
        return None
