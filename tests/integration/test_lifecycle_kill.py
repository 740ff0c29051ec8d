"""Runs whose workers are killed: they go on elsewhere, nothing is counted twice or left over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from cloudcore.clock import uuid7
from cloudcore.jobs.queue import first_due
from cloudcore.jobs.runs import list_runs
from registry.metadata.repositories.repository import find_repository
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.lifecycle.rules import LifecycleRule, put_policy
from registry.services.lifecycle.runs import KIND, PORTION, start_run
from tests.inprocess import Registry, open_registry
from tests.jobs import end_leases, until
from tests.loaded import Worker, start_worker
from tests.memory_store import MemoryStore
from tests.recount import check_counters, querying

SIGNATURES: Final = 120
"""More than two transactions take, so deaths divide them from their subject."""
LOOSE: Final = 5
KEPT: Final = 3


async def push(registry: Registry, number: int, tag: str = "", **fields: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """Push an image of a blob of its own, and return its descriptor."""
    ask = registry.client.request
    data = f"layer {number}".encode()
    blob = {"mediaType": "application/x", "digest": digest_of(data), "size": len(data)}
    path = f"/v2/dev/app/blobs/uploads/?digest={digest_of(data)}"
    assert (await ask("POST", path, data)).status == 201
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": blob, "layers": []}
    body = json.dumps(document | fields).encode()
    reference = tag or digest_of(body)
    kind = {"content-type": OCI_MANIFEST}
    assert (await ask("PUT", f"/v2/dev/app/manifests/{reference}", body, kind)).status == 201
    return {"mediaType": OCI_MANIFEST, "digest": digest_of(body), "size": len(body)}


async def fill(registry: Registry) -> int:
    """Push what is to go, and what is to stay; return the bytes that are to be freed."""
    subject = await push(registry, 0, "ci-0")
    for number in range(1, SIGNATURES + 1):
        await push(registry, number, subject=subject)
    gone = SIGNATURES + LOOSE + 1
    for number in range(SIGNATURES + 1, gone):
        await push(registry, number, f"ci-{number}")
    for number in range(gone, gone + KEPT):
        await push(registry, number, f"v{number}")
        await push(registry, number + 1000)
    return sum(len(f"layer {number}") for number in range(gone))


def start_lifecycle(url: str, steps: int) -> Worker:
    """Start a worker that waits for its death with so many steps prepared; 0: it does not."""
    return start_worker("tests.integration.lifecycle_worker", url, str(steps))


def kill_at(url: str, steps: int) -> None:
    """Let a worker prepare so many steps, of which the last is not committed, and kill it.

    Then its lease has run out.
    """
    worker = start_lifecycle(url, steps)
    try:
        assert worker.stdout.readline() == "waiting\n"
    finally:
        worker.kill()
    assert end_leases(url) == [KIND]


async def test_a_run_goes_on_after_its_workers_death(database_url: str) -> None:
    """Referrers are taken by no rule here: only their subject's expiry takes them along."""
    url = database_url
    rules = [
        LifecycleRule(priority=1, selector="tagged", tag_prefixes=["ci-"], not_pulled_for_days=1)
    ]

    async with open_registry(url, MemoryStore()) as registry:
        freed = await fill(registry)
        database, clock = registry.ctx.database, registry.clock
        found = await database.read(find_repository, "dev", "app")
        assert found is not None
        await database.write(put_policy, found.id, rules, clock())
        await database.write(start_run, found.id, uuid7(), registry.ctx.change_by("someone"))
        # With nothing done; planned; with the subject gone and most signatures left.
        for steps in (1, 2, 3):
            await asyncio.to_thread(kill_at, url, steps)
        (run,) = await database.read(list_runs, KIND, found.id, "", 9)
        assert (run.state, run.counts["expired"], run.done) == ("running", PORTION, PORTION)
        with querying(url) as query:
            signed = "SELECT count(*) FROM manifests WHERE subject_digest IS NOT NULL"
            assert query(signed) == [(SIGNATURES + 1 - PORTION,)]
        worker = start_lifecycle(url, 0)

        async def is_done() -> bool:
            return await database.read(first_due, [KIND]) is None

        try:
            await until(is_done)
        finally:
            worker.kill()
        (run,) = await database.read(list_runs, KIND, found.id, "", 9)
        assert (run.state, run.fault) == ("succeeded", None)
        assert run.counts["evaluated"] == SIGNATURES + LOOSE + 1 + 2 * KEPT
        assert run.counts["expired"] == SIGNATURES + LOOSE + 1
        assert run.counts["freed_bytes"] == freed
        with querying(url) as query:
            assert query("SELECT count(*) FROM manifests") == [(2 * KEPT,)]
            check_counters(query, "dev")
