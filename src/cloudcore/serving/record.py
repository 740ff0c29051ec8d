"""What is known of a finished exchange, for the log and the figures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cloudcore.serving.planes import Planes
    from cloudcore.serving.request_cycle import RequestCycle

TLS_HELLO: Final = "a TLS hello: this port speaks plain HTTP"
"""The reason of a record without a request: Go clients try TLS first."""

MAX_USER_AGENT: Final = 256
"""Bytes of a ``User-Agent`` that are kept."""


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
    """Bytes of the response's body that left this process, also when its transfer was cut."""
    client: str
    plane: int
    """The number of the plane that the request belongs to."""
    principal: str = ""
    """CRN of the caller, once a credential proved it; empty for an unauthenticated client."""
    user_agent: bytes = b""
    reason: str = ""
    """Why the server itself refused or cut the exchange; empty when it did not."""


def record_of(exchange: RequestCycle, client: str, planes: Planes) -> RequestRecord:
    """Return the record of an exchange that has ended."""
    head = exchange.head
    state = exchange.scope["state"]
    return RequestRecord(
        time.time(),
        time.monotonic() - exchange.started_at,
        state.get("request_id", ""),
        head.method,
        head.path,
        head.query,
        exchange.status,
        0 if exchange.body is None else exchange.body.received,
        max(0, exchange.sent - exchange.unsent) if exchange.unsent else exchange.sent,
        client,
        planes.find(head.path, head.headers),
        state.get("principal", ""),
        head.traits.user_agent,
        exchange.reason,
    )
