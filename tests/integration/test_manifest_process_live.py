"""Each worker of a server has a manifest process of its own, which comes and goes with it."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from registry.oci.digest import digest_of
from registry.oci.manifest import MAX_DESCRIPTORS
from registry.oci.media_types import OCI_MANIFEST
from tests.live import LiveRegistry, start_registry

PART: Final = {"mediaType": "a/b", "digest": digest_of(b""), "size": 0}


def image(mark: str) -> bytes:
    layers = [PART] * (MAX_DESCRIPTORS - 1)
    return json.dumps({"schemaVersion": 2, "config": PART, "layers": layers, "x": mark}).encode()


def ask(
    registry: LiveRegistry, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", registry.port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def push(registry: LiveRegistry, mark: str) -> None:
    """Push an image of 5,000 descriptors, and find it whole."""
    body = image(mark)
    path = f"/v2/dev/app/manifests/{mark}"
    assert ask(registry, "PUT", path, body, **{"Content-Type": OCI_MANIFEST})[0] == 201
    assert ask(registry, "GET", path) == (200, body)


def children(pid: int) -> list[int]:
    """Return the child processes of a process, whichever of its threads started them."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sorted(int(each) for task in tasks for each in (task / "children").read_text().split())


def ended(pid: int) -> bool:
    """Return True once a process has ended; False if it does not within ten seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


@contextmanager
def serving(data: Path, *options: str) -> Iterator[LiveRegistry]:
    registry = start_registry(data, *options)
    try:
        path = f"/v2/dev/app/blobs/uploads/?digest={PART['digest']}"
        assert ask(registry, "POST", path)[0] == 201
        yield registry
    finally:
        registry.stop()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_server_starts_one_and_ends_it(tmp_path: Path, sig: signal.Signals) -> None:
    with serving(tmp_path) as registry:
        pid = registry.process.pid
        assert children(pid) == []
        push(registry, "a")
        (reader,) = children(pid)
        push(registry, "b")
        assert children(pid) == [reader]
        os.kill(reader, signal.SIGKILL)
        assert ended(reader)
        push(registry, "c")
        (again,) = children(pid)
        assert again != reader
        assert registry.stop(sig) == 0
        assert ended(again)


def test_it_ends_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as registry:
        workers = children(registry.process.pid)
        assert len(workers) == 2
        push(registry, "a")
        readers = [reader for worker in workers for reader in children(worker)]
        assert len(readers) == 1
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        assert all(ended(each) for each in (*workers, *readers))
