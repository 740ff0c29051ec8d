"""The parts of a connection that bodies and transfers use, whatever its protocol is."""

from __future__ import annotations

import asyncio
from typing import Protocol

from cloudcore.serving.bodies.bulk import BulkJob, BulkPool
from cloudcore.serving.limits import ServerLimits


class WorkerThreads(Protocol):
    """The limits and bulk threads of a worker process."""

    @property
    def limits(self) -> ServerLimits:
        """Return the limits of the server."""

    @property
    def receivers(self) -> BulkPool:
        """Return the threads that receive bodies."""

    @property
    def senders(self) -> BulkPool:
        """Return the threads that send bodies."""


class BodyConnection(Protocol):
    """A connection, as a body sees it."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    is_tls: bool
    peer_closed: bool
    write_paused: bool

    @property
    def worker(self) -> WorkerThreads:
        """Return the threads of the connection's process."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write to the client; do nothing if it has disconnected."""

    async def drained(self, kept: int = 0) -> None:
        """Wait until everything written has been sent; `kept` bytes are in memory meanwhile."""

    def is_closing(self) -> bool:
        """Return True if the connection is closed or closing."""

    def fileno(self) -> int:
        """Return the socket's descriptor; only valid while not `is_closing`."""

    def pause_reading(self) -> None:
        """Stop reading; leave the client's bytes in the socket."""

    def resume_reading(self) -> None:
        """Resume reading from the client."""

    def body_ended(self, surplus: bytes) -> None:
        """Report that the current body is complete; `surplus` has the bytes received after it."""


class Transfer(Protocol):
    """A response, as seen by the job that sends its body."""

    sent: int
    send_job: BulkJob[bool] | None

    @property
    def connection(self) -> BodyConnection:
        """Return the response's connection."""
