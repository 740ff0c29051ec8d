"""Clients that are too slow: heads, bodies, responses and idle connections have a limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cloudcore.serving.limits import ServerLimits
from tests.integration.serving_app import Client, RunningServer, SampleApplication, serving
from tests.integration.slow_clients import sparse_file
from tests.waiting import until

LIMITS = ServerLimits(
    head_seconds=1,
    keep_alive_seconds=0.8,
    idle_seconds=1,
    linger_seconds=0.3,
    sweep_seconds=0.05,
)
"""A second, as a busy machine may stand still for half of one, which must cut nobody here."""


FAULT = "the request took longer than 1 s"


@pytest.fixture(params=["uvloop", "uvloop+tls"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with serving(limits=LIMITS, loop=request.param) as running:
        yield running


@pytest.fixture
def over_tls() -> Iterator[RunningServer]:
    """Run an impatient server of TLS; `test_serving_slow_clients` has bodies without."""
    with serving(limits=LIMITS, loop="uvloop+tls") as running:
        yield running


def test_a_silent_or_an_idle_connection_is_closed(server: RunningServer) -> None:
    with server.connect() as client:
        assert client.is_closed()
    with server.connect() as client:
        started = time.monotonic()  # before the answer, which a busy machine may read late
        client.ask(b"GET /v2/ HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.is_closed()
        assert time.monotonic() - started > 0.6


def test_a_head_that_is_never_finished_gets_a_408(server: RunningServer) -> None:
    with server.connect() as client:
        started = time.monotonic()
        client.send(b"GET /v2/ HTTP/1.1\r\nHost: a\r\n")
        assert client.response()[0].status == 408
        assert client.is_closed()
        assert server.records[0].reason == "the request head came too slowly"
        assert time.monotonic() - started > 0.9
    with server.connect() as client:  # bytes now and then do not prolong it
        client.send(b"GET /v2/ HTTP/1.1\r\nHost: a\r\nX: ")
        assert drip(client).startswith(b"HTTP/1.1 408 ")


def drip(client: Client) -> bytes:
    """Send a byte now and then until an answer comes; return its beginning."""
    client.sock.settimeout(0.02)  # between two bytes; a handshake may take longer
    for _ in range(4000):
        client.send(b"x")
        with suppress(TimeoutError):
            return client.sock.recv(100)
    return b""


@pytest.mark.parametrize("target", ["stream?100000", "file?count=50000000"])
def test_a_response_nobody_reads_is_cut(
    over_tls: RunningServer, target: str, tmp_path: Path
) -> None:
    over_tls.app.file = sparse_file(tmp_path)
    with over_tls.connect() as client:
        client.send(f"GET /v2/{target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert over_tls.app.returned.wait(60)


def test_a_response_that_is_read_slowly_is_not_cut(over_tls: RunningServer) -> None:
    with over_tls.connect() as client:
        client.send(b"GET /v2/stream?150 HTTP/1.1\r\nHost: a\r\n\r\n")
        received, paused_at = 0, 0
        while received < 150 * 65536:
            part = client.sock.recv(700_000)  # of TLS, one record
            assert part, received
            received += len(part)
            if received - paused_at > 500_000:
                paused_at = received
                time.sleep(0.1)  # the pace under test


def test_an_application_that_thinks_is_not_cut(over_tls: RunningServer) -> None:
    with over_tls.connect() as client:
        client.send(b"PUT /v2/slow?1.5 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        assert client.response()[1] == b"done"


@pytest.mark.parametrize("target", ["echo", "sink"])
def test_over_tls_a_body_that_drips_is_ended_when_the_request_is_too_old(target: str) -> None:
    """Without TLS: `test_serving_slow_clients`."""
    with serving(limits=replace(LIMITS, request_seconds=1), loop="uvloop+tls") as server:
        with server.connect() as client:
            head = f"PUT /v2/{target} HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n"
            client.send(head.encode())
            assert drip(client).startswith(b"HTTP/1.1 408 ")
        until(lambda: len(server.records) == 1)
        assert server.records[0].reason == FAULT
        assert server.records[0].received > 1


@pytest.mark.parametrize("target", ["stream?1000000", "file"])
def test_over_tls_a_response_that_is_read_on_is_ended_when_the_request_is_too_old(
    target: str, tmp_path: Path
) -> None:
    path = sparse_file(tmp_path, 1 << 40)
    limits = replace(LIMITS, request_seconds=1)
    with serving(SampleApplication(path), limits, loop="uvloop+tls") as server:
        with server.connect() as client:
            client.send(f"GET /v2/{target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            with suppress(OSError):
                while client.sock.recv(1 << 20):
                    pass
        until(lambda: len(server.records) == 1)
        assert server.records[0].reason == FAULT
        assert server.records[0].sent > 1 << 20
