"""A keep-alive HTTP/1.1 connection that uses as little CPU as possible.

The client shares its cores with the measured server. So the kernel drops the bodies of answers
(``MSG_TRUNC``), uploads use ``sendfile``, and response heads are searched, not parsed. Answers must
have a ``Content-Length`` or be chunked.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlsplit

FIRST_READ_BYTES = 8192  # a head with a small body in one call; little of a large body is copied
DISCARD_BYTES = 1 << 20
STALL_SECONDS = 120

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)


class ExchangeFailedError(Exception):
    """The server gave a wrong answer."""


@dataclass(frozen=True, slots=True)
class Head:
    """The status line and the headers of one response, as received."""

    status: int
    raw: bytes

    def value(self, name: str) -> str:
        """Return the value of header `name`; raise ExchangeFailedError if it is absent."""
        pattern = rb"\r\n" + re.escape(name.encode()) + rb":[ \t]*([^\r\n]*)"
        found = re.search(pattern, self.raw, re.IGNORECASE)
        if not found:
            raise ExchangeFailedError(f"{self.status} without {name}")
        return found.group(1).decode().strip()

    @property
    def body_bytes(self) -> int | None:
        """Return the length of the body, or None if it is chunked (RFC 9112 §6)."""
        if _CHUNKED.search(self.raw):
            return None
        found = _LENGTH.search(self.raw)
        return int(found.group(1)) if found else 0


def parse_head(raw: bytes) -> Head:
    """Return the head in `raw`, which ends before its empty line."""
    if not raw.startswith(b"HTTP/1.1 "):
        raise ExchangeFailedError(f"not an HTTP/1.1 response: {raw[:40]!r}")
    return Head(int(raw[9:12]), raw)


class Connection:
    """A blocking connection to the server at `url`, for one thread at a time."""

    def __init__(self, url: str, *headers: str) -> None:
        """Connect; `headers` are part of every request."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"only plain http can be measured, not {url}")
        self.host = parts.netloc
        self._headers = headers
        self.received_bytes = 0
        self.socket = socket.create_connection((parts.hostname, parts.port or 80))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout of the socket module would add a poll() to each call; the kernel's does not.
        stall = struct.pack("ll", STALL_SECONDS, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, stall)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, stall)
        self._sink = memoryview(bytearray(DISCARD_BYTES))
        self._early = b""

    def abort(self) -> None:
        """Shut the connection down, so that a blocked call of another thread fails at once."""
        with suppress(OSError):  # the server may have closed it
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; call it only from the thread that uses it."""
        self.socket.close()

    def request(self, method: str, target: str, *headers: str) -> bytes:
        """Return the bytes of a request head, which may be sent many times."""
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {self.host}",
            *self._headers,
            *headers,
            "",
            "",
        ]
        return "\r\n".join(lines).encode()

    def send(self, data: bytes, *, more: bool = False) -> None:
        """Send `data`; with `more`, the kernel may join it with what follows."""
        self.socket.sendall(data, socket.MSG_MORE if more else 0)

    def send_file(self, descriptor: int, count: int) -> None:
        """Send the first `count` bytes of an open file without copying them."""
        offset = 0
        while offset < count:
            sent = os.sendfile(self.socket.fileno(), descriptor, offset, count - offset)
            if sent == 0:
                raise ExchangeFailedError("the prepared body is shorter than the push")
            offset += sent

    def head(self) -> Head:
        """Receive a response head; keep the received part of its body for the next call."""
        received = self._early
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._some()
        self._early = received[end + 4 :]
        return parse_head(received[:end])

    def discard(self, head: Head) -> int:
        """Discard the body that follows `head`; return its length."""
        length = head.body_bytes
        if length is None:
            return len(self.body(head))
        remaining = length - len(self._early)
        if remaining < 0:
            raise ExchangeFailedError("bytes after the end of the response")
        self.received_bytes += len(self._early)
        self._early = b""
        flags = socket.MSG_TRUNC | socket.MSG_WAITALL
        while remaining:
            count = min(remaining, DISCARD_BYTES)
            got = self.socket.recv_into(self._sink, count, flags)
            if got == 0:
                raise ExchangeFailedError(f"connection closed {remaining} bytes early")
            remaining -= got
            self.received_bytes += got
        return length

    def body(self, head: Head) -> bytes:
        """Receive the body that follows `head`."""
        length = head.body_bytes
        if length is None:
            return self._chunked_body()
        return self._take(length)

    def body_digest(self, head: Head) -> str:
        """Receive the body that follows `head`; return its sha256 digest."""
        length = head.body_bytes
        if length is None:
            return f"sha256:{sha256(self._chunked_body()).hexdigest()}"
        running = sha256(self._early)
        remaining = length - len(self._early)
        self._early = b""
        while remaining:
            got = self.socket.recv_into(self._sink, min(remaining, DISCARD_BYTES))
            if got == 0:
                raise ExchangeFailedError(f"connection closed {remaining} bytes early")
            running.update(self._sink[:got])
            remaining -= got
        return f"sha256:{running.hexdigest()}"

    def _chunked_body(self) -> bytes:
        body = bytearray()
        while size := int(self._line().split(b";")[0], 16):
            body += self._take(size + 2)[:size]
        while self._line():
            pass  # trailers
        return bytes(body)

    def _take(self, count: int) -> bytes:
        taken = bytearray(self._early[:count])
        self._early = self._early[count:]
        while len(taken) < count:
            data = self.socket.recv(count - len(taken))
            if not data:
                raise ExchangeFailedError("connection closed in the middle of a body")
            taken += data
        return bytes(taken)

    def _line(self) -> bytes:
        while (end := self._early.find(b"\r\n")) < 0:
            self._early += self._some()
        line, self._early = self._early[:end], self._early[end + 2 :]
        return line

    def _some(self) -> bytes:
        data = self.socket.recv(FIRST_READ_BYTES)
        if not data:
            raise ExchangeFailedError("connection closed before the response was whole")
        return data
