"""All limits of the server; tests lower them."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Minimum bytes a transfer must move while a worker has more than `crowd` connections."""
    crowd: int = 1000

    request_seconds: float = 0.0
    """Maximum time from the head of a request to the end of its answer; 0: there is none."""
    request_grace_seconds: float = 10.0
    """Time after that for an answer to a request whose body was cut."""

    refusal_drain_bytes: int = MIB
    refusal_drain_seconds: float = 5.0
    linger_bytes: int = MIB
    linger_seconds: float = 2.0

    sweep_seconds: float = 1.0
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
