"""The record of a finished request, for the log and the counters."""

from __future__ import annotations

from typing import Final, NamedTuple

TLS_HELLO: Final = "a TLS hello: this port speaks plain HTTP"
"""The reason of a record without a request: Go clients try TLS first."""

PLAIN_HTTP: Final = "this port speaks TLS: use https://"
"""The reason in the record of plain HTTP on a TLS port, and the message that the client gets."""

MAX_USER_AGENT: Final = 256
"""Maximum bytes of a ``User-Agent`` in the record."""


class ObserverCache:
    """What observers derive from a record: its counter cells, and parts of its log line.

    It is shared by records that differ only in time, duration, id and client.
    """

    __slots__ = ("cells", "line")

    def __init__(self) -> None:
        self.cells: tuple[int, ...] | None = None
        self.line: tuple[bytes, bytes] | None = None


class RequestRecord(NamedTuple):
    """One request and its response; sizes are of the bodies, in bytes."""

    finished_at: float
    seconds: float
    request_id: str
    method: str
    path: bytes
    query: bytes
    status: int
    received: int
    sent: int
    """Bytes of the response body sent to the client, even if the transfer was aborted.

    Over TLS, up to 128 KiB too few if the client left in the middle of a piece.
    """
    client: str
    plane: int
    """Number of the request's plane."""
    principal: str = ""
    """CRN of the caller, once a credential proved it; empty for an unauthenticated client."""
    user_agent: bytes = b""
    source: tuple[str, str, str | None] | None = None
    """Who is behind the principal: CRN, name, and the name of the role session."""
    reason: str = ""
    """Why the server itself refused or aborted the request; else empty."""
    event: str = ""
    """Key of the counted event that the response stands for; empty for none."""
    cache: ObserverCache | None = None
