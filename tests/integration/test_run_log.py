"""A run that has ended leaves one line in the log, however it ended."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cloudcore.db.base import Connection
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import Job, NewJob, enqueue, record_failure
from cloudcore.serving.logs import JsonFormatter
from registry.gc.collection import collection_kind
from registry.services.collector_runs import start_collection
from tests.integration.lifecycle_world import LifecycleWorld
from tests.jobs import lose_workers, run_due
from tests.memory_store import MemoryStore

UNTAGGED: dict[str, Any] = {"priority": 1, "selector": "untagged"}
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """Return what the log tells of runs, as it is written."""
    caplog.set_level(logging.INFO, "registry.services.runs")
    written = JsonFormatter()

    def found() -> list[dict[str, Any]]:
        return [
            json.loads(written.format(record))
            for record in caplog.records
            if record.name == "registry.services.runs"
        ]

    return found


async def test_a_lifecycle_run_that_succeeded(lifecycle: LifecycleWorld, lines: Lines) -> None:
    await lifecycle.push_image("1", "v1")
    await lifecycle.push_image("22")
    await lifecycle.pass_days(1)
    run = await lifecycle.run(UNTAGGED)
    (line,) = lines()
    assert line["level"] == "info"
    assert line["run_id"] == run["id"]
    assert line["run_status"] == run["status"] == "succeeded"
    assert (line["evaluated"], line["expired"]) == (2, 1)
    assert line["freed_bytes"] == run["freed_bytes"]
    assert line["repository_id"] == lifecycle.repository_id
    assert len(line["account_id"]) == 36
    assert line["duration_seconds"] >= 0
    assert "fault" not in line


async def test_a_lifecycle_run_that_failed(lifecycle: LifecycleWorld, lines: Lines) -> None:
    """With the portions that were left: the step that finds the run over tells nothing anew."""
    for number in range(60):  # two portions
        await lifecycle.push_image(f"{number}")
    await lifecycle.pass_days(1)

    async def change_the_policy() -> None:
        await lifecycle.put(UNTAGGED | {"priority": 2})

    run = await lifecycle.run(UNTAGGED, meddle=change_the_policy)
    (line,) = lines()
    assert (line["run_id"], line["run_status"]) == (run["id"], "failed")
    assert line["fault"].startswith("POLICY_CHANGED")


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_collection(lifecycle: LifecycleWorld, lines: Lines, is_lost: bool) -> None:
    """It succeeds at once, or has failed when its steps were tried too often."""
    install = lifecycle.install
    ctx, database = install.ctx, install.database
    account_id = lifecycle.account.id
    kind = collection_kind(ctx, MemoryStore())
    run = await database.write(start_collection, account_id, ctx.new_id(), ctx.change_by(""))
    install.clock.advance(2)
    if is_lost:
        await lose_workers(database, kind.name, install.clock())
    await run_due(database, [kind], install.clock)
    (line,) = lines()
    assert (line["run_id"], line["account_id"]) == (run.id, account_id)
    assert line["run_status"] == ("failed" if is_lost else "succeeded")
    assert line.get("fault") == ("WORKER_LOST" if is_lost else None)
    for name in ("unlinked", "condemned", "swept", "removed", "freed_bytes", "kept"):
        assert line[name] == 0
    assert line["duration_seconds"] >= 2


async def test_what_was_undone_is_not_told(lifecycle: LifecycleWorld) -> None:
    """A step whose lease was lost did not count; the next attempt is told, once."""
    told: list[object] = []

    database, clock = lifecycle.install.database, lifecycle.install.clock
    await database.write(lambda tx: enqueue(tx, NewJob("test.told", None), clock()))
    tries = 0

    async def step(job: Job) -> Next | Done:
        nonlocal tries
        tries += 1
        if tries == 1:  # another worker gives the job back meanwhile
            await database.write(
                partial(record_failure, job=job, code="X", message="", now=clock()),
                retry_seconds=lambda _: 0.0,
            )
        return Done(_seven, told.append)

    await run_due(database, [JobKind(name="test.told", step=step)], clock)
    assert (tries, told) == (2, [7])


def _seven(_: Connection) -> int:
    return 7
