"""A registry that cannot start leaves nothing open, and one without its database stops."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db import postgresql
from cloudcore.family import Family, Runtime
from cloudcore.jobs.kinds import Done, JobKind
from cloudcore.jobs.queue import Job, NewJob, enqueue
from cloudcore.nodes import rows
from cloudcore.nodes.node import Watch
from cloudcore.ports import Opening
from registry.composition import main
from registry.composition.dev import DEV
from registry.composition.main import PlaneApplications, Registry, prepare
from registry.composition.stores import STORES, RegistryStores
from registry.settings.settings import Settings
from tests.databases import planted


def registry_of(
    settings: Settings,
    processes: list[RegistryStores],
    **runs: Any,  # noqa: ANN401
) -> Registry:
    """Return a registry with a further family, which notes the stores of the process."""

    async def note(opening: Opening) -> None:
        processes.append(await opening.get(STORES))

    family = Family[None](name="test", runs=Runtime(open=note, **runs))
    return Registry(settings, replace(DEV, families=(*DEV.families, family)))


async def test_what_a_failed_start_opened_is_closed(tmp_path: Path) -> None:
    settings = Settings(data=planted(tmp_path / "data"))
    prepare(settings)
    closed: list[str] = []

    async def open_needs(opening: Opening) -> None:
        opening.resources.callback(closed.append, "made by a family")

    async def fail(*_: object) -> PlaneApplications:
        raise LookupError("no planes")

    before = set(threading.enumerate())
    family = Family[None](name="test", runs=Runtime(open=open_needs))
    registry = Registry(settings, replace(DEV, families=(*DEV.families, family), make_planes=fail))
    with pytest.raises(LookupError, match="no planes"):
        await registry.start()
    assert closed == ["made by a family"]
    assert list((settings.data / "workers").iterdir()) == []
    left = {each.name for each in set(threading.enumerate()) - before}
    assert not [name for name in left if not name.startswith("asyncio_")]  # those are the loop's


@pytest.mark.timeout(60)
async def test_a_process_whose_machine_lost_its_name_gives_up_the_jobs_of_the_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "SEEN_SECONDS", 0.01)
    settings = Settings(data=planted(tmp_path / "data"))
    prepare(settings)
    begun, ended, others = asyncio.Event(), asyncio.Event(), asyncio.Event()
    processes: list[RegistryStores] = []
    node = settings.node.node(settings.data)

    async def hang(_job: Job) -> Done:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Done()

    async def tell(_job: Job) -> Done:
        others.set()
        return Done()

    async def watch() -> None:
        pass

    kinds = (
        JobKind(name="grind", step=hang, slots=1, node=node.name),
        JobKind(name="tell", step=tell),
    )
    watches = (Watch("mills", 3600, watch),)
    registry = registry_of(
        settings, processes, job_kinds=lambda _: kinds, on_node=lambda _: watches
    )
    await registry.start()
    try:
        ctx = processes[0].ctx
        await ctx.database.write(enqueue, NewJob("grind", {}), ctx.clock())
        await begun.wait()
        late = ctx.clock() + 2 * rows.LOST_SECONDS * MICROSECONDS
        await ctx.database.write(rows.claim, node, "another", late)
        await ended.wait()
        await ctx.database.write(enqueue, NewJob("tell", {}), ctx.clock())
        await others.wait()
    finally:
        await registry.stop()


UNRECORDED = "stops without recording the last pulls: the database cannot do this now"


@pytest.mark.postgresql
@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_stop_does_not_wait_for_a_database_that_is_away(
    tmp_path: Path,
    postgresql_database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    comes_back: bool,
) -> None:
    """But if only the connections broke, new ones are made, and nothing is lost."""
    monkeypatch.setattr(postgresql, "PATIENCE_SECONDS", 600)
    monkeypatch.setattr(main, "_PULL_FLUSH_SECONDS", 3600)  # the stop alone records the pull
    settings = Settings(data=tmp_path / "data", database_url=postgresql_database)
    prepare(settings)
    processes: list[RegistryStores] = []
    registry = registry_of(settings, processes)
    await registry.start()
    processes[0].ctx.pulls.note(uuid7())
    await asyncio.to_thread(end_connections, postgresql_database, accepts_others=comes_back)
    async with asyncio.timeout(60):
        await registry.stop()
    assert (UNRECORDED in caplog.text) is not comes_back
    assert "Traceback" not in caplog.text


def end_connections(url: str, *, accepts_others: bool) -> None:
    """End all connections to a database; let it refuse new ones unless it `accepts_others`."""
    server, _, name = url.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        if not accepts_others:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
            [name],
        )
