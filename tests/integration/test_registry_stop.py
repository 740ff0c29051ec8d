"""A registry whose database is away stops all the same, and tells what it could not record."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from cloudcore.clock import uuid7
from cloudcore.db import postgresql
from cloudcore.family import Family, Runtime
from cloudcore.ports import Opening
from registry.composition import main
from registry.composition.dev import DEV
from registry.composition.main import Registry, prepare
from registry.composition.stores import STORES, RegistryStores
from registry.settings.settings import Settings

pytestmark = pytest.mark.postgresql

UNRECORDED = "stops without recording the last pulls: the database cannot do this now"


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

    async def note(opening: Opening) -> None:
        processes.append(await opening.get(STORES))

    noting = Family[None](name="test", runs=Runtime(open=note))
    registry = Registry(settings, replace(DEV, families=(*DEV.families, noting)))
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
