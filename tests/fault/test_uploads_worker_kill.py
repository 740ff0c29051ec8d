"""A worker of a real registry killed while it receives a chunk: another goes on at once."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Final

import pytest

from cloudcore.serving.worker_locks import WorkerLocks
from registry.oci.digest import digest_of
from tests.live import LiveRegistry, start_registry

FIRST: Final = os.urandom(300_000)
SECOND: Final = os.urandom(4_500_000)
WHOLE: Final = FIRST + SECOND
UPLOADS: Final = "/v2/dev/app/blobs/uploads/"
PATIENCE_SECONDS: Final = 15

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


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Look until a condition holds."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.01)


def workers_of(pid: int) -> list[int]:
    """Return the process ids of a supervisor's workers."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def files_of(pid: int) -> Iterator[str]:
    """Yield what the descriptors of a process refer to; it closes some meanwhile."""
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(each.readlink())


def owner_of(remote_port: int, local_port: int, pids: list[int]) -> int:
    """Return the process that has a connection between two ports of this machine."""
    remote = f":{remote_port:04X} "
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{local_port:04X}") and f"{fields[2]} ".endswith(remote):
            link = f"socket:[{fields[9]}]"
            for pid in pids:
                if link in files_of(pid):
                    return pid
    raise AssertionError("no worker has the connection")


def kill(pids: Sequence[int]) -> None:
    """Kill processes and wait until their last threads have ended; their files are closed then."""
    processes = [os.pidfd_open(pid) for pid in pids]
    try:
        for process in processes:
            signal.pidfd_send_signal(process, signal.SIGKILL)
        for process in processes:
            assert select.select([process], [], [], PATIENCE_SECONDS)[0], "a process lives on"
    finally:
        for process in processes:
            os.close(process)


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
        wait_for(lambda: staged.stat().st_size > before, "nothing was written")
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
