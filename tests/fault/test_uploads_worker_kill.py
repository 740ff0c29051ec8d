"""A worker of a real registry killed while it receives a chunk: another goes on at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Final

import pytest

from cloudcore.jobs.dead_holders import WorkerLocks
from registry.oci.digest import digest_of
from tests.fault.workers import kill, owner_of, workers_of
from tests.live import LiveRegistry, start_registry
from tests.waiting import until

FIRST: Final = os.urandom(300_000)
SECOND: Final = os.urandom(4_500_000)
WHOLE: Final = FIRST + SECOND
UPLOADS: Final = "/v2/dev/app/blobs/uploads/"

pytestmark = pytest.mark.timeout(120)


def ask(
    registry: LiveRegistry,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> tuple[HTTPResponse, bytes]:
    """Send one request on a connection of its own."""
    connection = HTTPConnection("127.0.0.1", registry.port, timeout=30)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


@contextmanager
def begun(registry: LiveRegistry) -> Iterator[tuple[str, socket.socket]]:
    """Acknowledge `FIRST`, send half of `SECOND`, and wait until it is being written."""
    location = ask(registry, "POST", UPLOADS)[0].headers["location"]
    assert ask(registry, "PATCH", location, FIRST)[0].status == 202
    (staged,) = (registry.data / "blobs" / "uploads").iterdir()
    before = staged.stat().st_size
    host = f"127.0.0.1:{registry.port}"
    head = f"PATCH {location} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(SECOND)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", registry.port)) as client:
        client.sendall(head.encode() + SECOND[: len(SECOND) // 2])
        until(lambda: staged.stat().st_size > before, "nothing was written")
        assert ask(registry, "PATCH", location, b"x")[0].status == 409, "it is held"
        yield location, client


def finish(registry: LiveRegistry, location: str, method: str) -> None:
    """Go on with the upload, at the first try."""
    received = ask(registry, "GET", location)[0].headers["range"]
    assert received == f"0-{len(FIRST) - 1}"
    place = {"content-range": f"{len(FIRST)}-{len(WHOLE) - 1}"}
    digest, last = digest_of(WHOLE), b""
    if method == "PATCH":
        assert ask(registry, "PATCH", location, SECOND, place)[0].status == 202
        place = {}
    else:
        last = SECOND
    assert ask(registry, "PUT", f"{location}?digest={digest}", last, place)[0].status == 201
    assert ask(registry, "GET", f"/v2/dev/app/blobs/{digest}")[1] == WHOLE


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_another_worker_goes_on_at_once(database_url: str, tmp_path: Path, method: str) -> None:
    env = {"ENTREPOT_DATABASE_URL": database_url}
    registry = start_registry(tmp_path / "data", "--workers", "2", env=env)
    try:
        with begun(registry) as (location, client):
            workers = workers_of(registry.process.pid)
            pid = owner_of(client.getsockname()[1], registry.port, workers)
            kill([pid])
            finish(registry, location, method)
    finally:
        registry.stop()
    folder = tmp_path / "data" / "workers"
    assert len(list(folder.iterdir())) == 1, "only of the one that was killed"
    assert len(WorkerLocks(folder).dead()) == 1


def test_a_registry_that_starts_again_goes_on_at_once(tmp_path: Path) -> None:
    registry = start_registry(tmp_path / "data", "--workers", "2")
    with begun(registry) as (location, _):
        kill([registry.process.pid, *workers_of(registry.process.pid)])
    registry.process.wait()
    registry = start_registry(tmp_path / "data", "--workers", "2")
    try:
        finish(registry, location, "PATCH")
    finally:
        registry.stop()
