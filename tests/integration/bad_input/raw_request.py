"""One request sent as it is written, one answer: no client library mends what is broken."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    """What came back, and after how long."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    seconds: float

    def header(self, name: str) -> str | None:
        """Return the one value of a header, None without it; two are a fault."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(values) < 2, (name, values)
        return values[0] if values else None

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Return the errors of the OCI envelope (§ Error Codes)."""
        errors: list[dict[str, Any]] = json.loads(self.body)["errors"]
        return errors

    @property
    def comparable_headers(self) -> dict[str, str]:
        """Return the headers that two equal requests share."""
        own = {"date", "x-request-id"}
        return {name.lower(): value for name, value in self.headers if name.lower() not in own}


def connection_to(url: str, timeout: float = 60) -> http.client.HTTPConnection:
    """Return a connection to the server at `url`, which opens with its first request."""
    address = urlsplit(url)
    assert address.hostname is not None
    return http.client.HTTPConnection(address.hostname, address.port, timeout=timeout)


def send(
    url: str,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout: float = 60,
) -> Answer:
    """Send `target` byte by byte to the server at `url`, on a connection of its own.

    `Content-Length` is the body's unless `headers` say otherwise.
    """
    connection = connection_to(url, timeout)
    begun = time.monotonic()
    with contextlib.closing(connection):
        connection.putrequest(method, target, skip_accept_encoding=True)
        names = {name.lower() for name in headers or {}}
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body and not names & {"content-length", "transfer-encoding"}:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        # Refused early, the server may close before all is sent: the answer is there to be read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.send(body)
        with connection.getresponse() as response:
            received = response.read()
            seconds = time.monotonic() - begun
            return Answer(response.status, response.getheaders(), received, seconds)
