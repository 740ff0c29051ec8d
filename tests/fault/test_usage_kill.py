"""Workers that are killed forget what they counted in memory, and nothing that was written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path

import pytest

from registry.composition import main
from registry.oci.digest import digest_of
from registry.services.resource_kinds import PULLS, TRANSFER
from tests.fault.workers import kill, workers_of
from tests.live import LiveRegistry, start_registry
from tests.recount import querying
from tests.waiting import until

BLOB = os.urandom(100_000)
KIND = {"content-type": "application/vnd.oci.image.manifest.v1+json"}
HELD, LATER = 3, 2
"""Pulls that a killed worker has counted, and those that others count."""

pytestmark = pytest.mark.timeout(120)


def ask(
    registry: LiveRegistry,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Send one request on a connection of its own; return the status and the body."""
    connection = HTTPConnection("127.0.0.1", registry.port, timeout=30)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def pull(registry: LiveRegistry, times: int) -> None:
    """Pull an image with its blob."""
    for _ in range(times):
        assert ask(registry, "GET", "/v2/dev/app/manifests/v1")[0] == 200
        assert ask(registry, "GET", f"/v2/dev/app/blobs/{digest_of(BLOB)}") == (200, BLOB)


def push(registry: LiveRegistry) -> None:
    """Push an image of one blob."""
    digest = digest_of(BLOB)
    path = f"/v2/dev/app/blobs/uploads/?digest={digest}"
    assert ask(registry, "POST", path, BLOB)[0] == 201
    document = (
        f'{{"schemaVersion":2,"mediaType":"{KIND["content-type"]}","config":{{"mediaType":"a/b",'
        f'"digest":"{digest}","size":{len(BLOB)}}},"layers":[]}}'
    )
    put = ask(registry, "PUT", "/v2/dev/app/manifests/v1", document.encode(), KIND)
    assert put[0] == 201


def test_killed_workers_lose_at_most_what_they_held(database_url: str, tmp_path: Path) -> None:
    """What was counted by a worker that is stopped, and what is counted after, is exact."""
    data, env = tmp_path / "data", {"ENTREPOT_DATABASE_URL": database_url}

    def total(sku: str) -> int:
        with querying(database_url) as query:
            rows = query("SELECT sum(quantity) FROM usage_hours WHERE sku = ?", sku)
        return int(rows[0][0] or 0)

    registry = start_registry(data, "--workers", "2", env=env)
    try:
        push(registry)
        pull(registry, LATER)
    finally:
        registry.stop()
    assert (total(PULLS.name), total(TRANSFER.name)) == (LATER, LATER * len(BLOB))
    registry = start_registry(data, "--workers", "2", env=env)
    try:
        pull(registry, HELD)
        before = workers_of(registry.process.pid)
        kill(before)
        until(
            lambda: len(set(workers_of(registry.process.pid)) - set(before)) == 2,
            "no worker came in place of one that was killed",
        )
        pull(registry, LATER)
    finally:
        registry.stop()
    pulls, sent = total(PULLS.name), total(TRANSFER.name)
    assert 2 * LATER <= pulls <= 2 * LATER + HELD
    assert 2 * LATER <= sent / len(BLOB) <= 2 * LATER + HELD
    assert sent % len(BLOB) == 0


def test_no_worker_holds_counts_for_longer_than_ten_seconds() -> None:
    assert main._PULL_FLUSH_SECONDS <= 10
