"""Limits of connections, requests and threads; detection of slow clients; release of memory.

A slow client occupies a connection but no thread, so it is tolerated while there are enough
connections. When those are scarce, a minimum rate keeps slow clients from occupying them all. Tests
lower the limits.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final, Protocol

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of requests, connections and threads; sizes in bytes, times in seconds.

    `head_bytes` leaves room for a 64 KiB bearer token, which must be answered 401 by the
    application rather than 431 by the server.
    """

    head_bytes: int = 96 * KIB
    header_count: int = 100
    head_seconds: float = 10.0
    keep_alive_seconds: float = 75.0

    idle_seconds: float = 60.0
    """Maximum time in which a transfer, in either direction, moves no byte."""
    pace_bytes: int = MIB
    pace_seconds: float = 60.0
    """Seconds in which a transfer must move `pace_bytes`, while a worker has more than `crowd`
    connections."""
    crowd: int = 1000

    request_seconds: float = 0.0
    """Maximum time from the head of a request to the end of its answer; 0: there is none."""
    request_grace_seconds: float = 10.0
    """Seconds after `request_seconds` for the response to a request whose body was cut off."""

    refusal_drain_bytes: int = MIB
    refusal_drain_seconds: float = 5.0
    linger_bytes: int = MIB
    linger_seconds: float = 2.0

    sweep_seconds: float = 1.0
    leaving_seconds: float = 0.0
    """Seconds after SIGTERM in which all requests are still served, while the application reports
    that it is about to stop. Balancers then send requests elsewhere, before the drain begins."""
    shutdown_seconds: float = 25.0

    inline_file_bytes: int = 64 * KIB
    loop_file_bytes: int = MIB
    burst_bytes: int = 256 * KIB
    bulk_slice_bytes: int = 64 * MIB
    bulk_patience_seconds: float = 0.005
    parked_bytes: int = 64 * MIB
    unsent_bytes: int = 64 * MIB
    """Maximum bytes of responses buffered for clients that do not read them."""
    receive_threads: int = 16
    send_threads: int = 4


class TransferPace:
    """The progress of one transfer, checked by every sweep; times in seconds, sizes in bytes."""

    __slots__ = ("_at", "_highest", "_mark", "_moved_at", "_receiving", "_seen_at")

    def __init__(self) -> None:
        self._at = self._moved_at = self._seen_at = 0.0
        self._mark = self._highest = -1
        self._receiving = False

    def fault(
        self,
        now: float,
        limits: ServerLimits,
        *,
        receiving: bool,
        waiting: bool,
        moved: int,
        crowded: bool,
    ) -> str | None:
        """Return the reason for which the client is too slow, or None.

        A transfer must move a byte in every `idle_seconds` and, while connections are scarce
        (`crowded`), `pace_bytes` in every `pace_seconds`. `moved` is the number of bytes so far.
        Only time in which the server waits for the client (`waiting`) counts.
        """
        if receiving is not self._receiving or self._mark < 0:
            self._receiving, self._mark, self._at = receiving, moved, now
            self._highest, self._moved_at = moved, now
        elif not waiting:
            self._at += now - self._seen_at
            self._moved_at += now - self._seen_at
        self._seen_at = now
        if moved > self._highest:
            self._highest, self._moved_at = moved, now
        if moved - self._mark >= limits.pace_bytes:
            self._mark, self._at = moved, now
        if not waiting:
            return None
        what = "of the request body came" if receiving else "of the response was taken"
        if now - self._moved_at > limits.idle_seconds:
            return f"no byte {what} in {limits.idle_seconds:g} s"
        if crowded and now - self._at > limits.pace_seconds:
            return (
                f"less than {limits.pace_bytes} bytes {what} in {limits.pace_seconds:g} s "
                "while connections are scarce"
            )
        return None


CUT: Final = "too many answers wait for slow clients, and this one waited longest"


class Abortable(Protocol):
    """A connection that can be closed at once."""

    def abort(self, reason: str = "") -> None:
        """Close the connection at once; `reason` is logged."""


class Unsent:
    """The unsent bytes of each connection, ordered by the start of the wait."""

    def __init__(self, size: int) -> None:
        """Allow at most `size` bytes."""
        self.size = size
        self.used = 0
        self._waiting: dict[Abortable, int] = {}

    def keep(self, connection: Abortable, count: int) -> None:
        """Set a connection's unsent bytes; beyond the limit, abort those that waited longest."""
        self.release(connection)
        self.used += count
        self._waiting[connection] = count
        while self.used > self.size and len(self._waiting) > 1:
            longest = next(iter(self._waiting))
            self.release(longest)
            longest.abort(CUT)

    def release(self, connection: Abortable) -> None:
        """Remove a connection's unsent bytes from the sum."""
        self.used -= self._waiting.pop(connection, 0)


def give_back_unused() -> None:
    """Return free pages of malloc to the system, which takes up to some 20 ms.

    Buffers of a MiB leave holes that malloc retains: 17 to 30 of a worker's 80 to 110 MiB, after
    twelve clients have sent and fetched bodies of 64 MiB.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
