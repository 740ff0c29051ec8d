"""Many clients in one thread, for small requests and answers.

Threads would spend more time on the interpreter's lock than on requests. One epoll loop takes about
20 µs of CPU per request, and leaves nearly all of it to the server.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.wire import (
    DISCARD_BYTES,
    FIRST_READ_BYTES,
    STALL_SECONDS,
    Connection,
    ExchangeFailedError,
    parse_head,
)


class Request(NamedTuple):
    """A request, ready to be sent, and the answer it must get."""

    data: bytes
    status: int
    length: int  # of the body, as ``Content-Length`` says
    has_body: bool = True  # false for HEAD


@dataclass(slots=True)
class _Client:
    connection: Connection
    requests: Iterator[Request]
    current: Request
    sent_at: float = 0.0
    received: bytes = b""
    remaining: int = -1  # of the body; -1 while the head is not complete


class PolledClients:
    """Clients that each send the requests of an iterator over one connection."""

    def __init__(self, pairs: Sequence[tuple[Connection, Iterator[Request]]]) -> None:
        self.latencies: list[float] = []
        self.payload_bytes = 0
        self.ended_at = 0.0
        self._sink = bytearray(DISCARD_BYTES)
        self._clients = {
            connection.socket.fileno(): _Client(connection, requests, next(requests))
            for connection, requests in pairs
        }

    def run(self, seconds: float) -> None:
        """Send requests for `seconds`; raise ExchangeFailedError at the first wrong answer."""
        deadline = time.perf_counter() + seconds
        with select.epoll() as poll:
            for number, client in self._clients.items():
                poll.register(number, select.EPOLLIN)
                self._send(client)
            open_count = len(self._clients)
            while open_count:
                ready = poll.poll(STALL_SECONDS)
                if not ready:
                    raise ExchangeFailedError(f"no answer in {STALL_SECONDS} s")
                for number, _ in ready:
                    client = self._clients[number]
                    if not self._receive(client):
                        continue
                    if time.perf_counter() < deadline:
                        client.current = next(client.requests)
                        self._send(client)
                    else:
                        open_count -= 1
        self.ended_at = time.perf_counter()

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.connection.close()

    def _send(self, client: _Client) -> None:
        client.received, client.remaining = b"", -1
        client.sent_at = time.perf_counter()
        client.connection.socket.sendall(client.current.data)

    def _receive(self, client: _Client) -> bool:
        """Receive what has arrived; return True if the answer is complete."""
        if client.remaining < 0 and not self._take_head(client):
            return False
        while client.remaining:
            count = min(client.remaining, DISCARD_BYTES)
            flags = socket.MSG_TRUNC | socket.MSG_DONTWAIT
            try:
                got = client.connection.socket.recv_into(self._sink, count, flags)
            except BlockingIOError:
                return False
            if got == 0:
                raise ExchangeFailedError("connection closed in the middle of a body")
            client.remaining -= got
        self.latencies.append(time.perf_counter() - client.sent_at)
        self.payload_bytes += client.current.length
        return True

    def _take_head(self, client: _Client) -> bool:
        data = client.connection.socket.recv(FIRST_READ_BYTES)
        if not data:
            raise ExchangeFailedError("connection closed instead of an answer")
        client.received += data
        end = client.received.find(b"\r\n\r\n")
        if end < 0:
            return False
        expected = client.current
        head = parse_head(client.received[:end])
        if (head.status, head.body_bytes) != (expected.status, expected.length):
            raise ExchangeFailedError(f"{head.status} of {head.body_bytes} bytes, not {expected}")
        body_bytes = expected.length if expected.has_body else 0
        client.remaining = body_bytes - (len(client.received) - end - 4)
        if client.remaining < 0:
            raise ExchangeFailedError("bytes after the end of the response")
        return True
