"""Clients that send and read a little at a time, and how far a server has got with them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cloudcore.serving.limits import KIB, MIB
from tests.integration.serving_app import Client, RunningServer
from tests.waiting import until

NEVER = 1e9
FILE_BYTES = 100 * MIB
COUNTED = "Content-Length: 9999999\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
BODIES = pytest.mark.parametrize(
    ("target", "fields"),
    [("echo", COUNTED), ("echo", CHUNKED), ("sink", COUNTED), ("sink", CHUNKED)],
)


def sparse_file(folder: Path, size: int = FILE_BYTES) -> Path:
    """Return a file of a size, by default more than sockets hold."""
    path = folder / "sparse"
    with path.open("wb") as opened:
        opened.truncate(size)
    return path


def begin(client: Client, target: str, fields: str) -> None:
    """Send the head of a request with a body."""
    client.send(f"PUT /v2/{target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode())


def send(server: RunningServer, client: Client, content: bytes, fields: str) -> None:
    """Send a piece of the body, and wait until the server can know of it."""
    before = arrived(server)
    client.send(content if fields == COUNTED else b"%x\r\n%s\r\n" % (len(content), content))
    until(lambda: arrived(server) == before + len(content))


def arrived(server: RunningServer) -> int:
    """Return how many bytes of the body have arrived, once someone waits for more."""
    until(lambda: server_has_body(server))
    body = server.cycle.body
    assert body is not None
    return body.arrived


def server_has_body(server: RunningServer) -> bool:
    """Tell whether the server waits for more of the body of the only request."""
    for connection in server.connections:
        body = None if connection.cycle is None else connection.cycle.body
        if body is not None:
            return body.waits or (body.job is not None and body.job.waiting)
    return False


def moved(server: RunningServer) -> int:
    """Return how many bytes of the response the client has."""
    cycle = server.cycle
    job = cycle.send_job
    return cycle.sent + (0 if job is None else job.moved) - cycle.connection.waiting_bytes()


def slow_reader(server: RunningServer, target: str) -> Client:
    """Ask for more than sockets hold, and read a byte of it; return when all is full."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
    sock.settimeout(60)
    sock.connect(("127.0.0.1", server.port))
    client = Client(sock)
    client.send(f"GET /v2/{target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert sock.recv(1)
    until(lambda: is_full(server))
    return client


def is_full(server: RunningServer) -> bool:
    """Tell whether the server waits for the client to read."""
    cycle = server.cycle
    job = cycle.send_job
    return cycle.connection.write_paused if job is None else job.parked


def read_until(server: RunningServer, client: Client, before: int) -> None:
    """Read a little at a time until the client has more than `before`."""
    while moved(server) <= before:
        assert client.sock.recv(4 * KIB)
