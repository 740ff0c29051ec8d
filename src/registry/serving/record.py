"""What is known of a finished exchange, for the log and the figures."""

from __future__ import annotations

from typing import NamedTuple


class RequestRecord(NamedTuple):
    """One request and its answer; sizes are those of the bodies, in bytes."""

    finished_at: float
    seconds: float
    request_id: str
    method: str
    path: bytes
    query: bytes
    status: int
    received: int
    sent: int
    client: str
