"""Revision 0003 over content of an older version: what nobody refers to is collected from then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from alembic import command
from sqlalchemy import text

from registry.blobstore.memory import MemoryStore
from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from tests.fault.collected import check_clean, clean, fill
from tests.inprocess import Registry, open_registry


def play(
    url: str,
    store: MemoryStore,
    *parts: Callable[[Registry, MemoryStore], Awaitable[None]],
    hours: int,
) -> None:
    """Play some parts over rows and bytes that outlive them."""

    async def run() -> None:
        async with open_registry(url, store) as registry:
            registry.clock.advance(hours * 3600)
            for part in parts:
                await part(registry, store)

    asyncio.run(run())


@pytest.fixture
def store() -> MemoryStore:
    """Return a store that outlives a registry."""
    return MemoryStore()


def test_unlinked_objects_are_condemned_and_collected(
    database_url: str, store: MemoryStore
) -> None:
    play(database_url, store, fill, hours=0)
    with migration_connection(database_url) as connection:
        command.downgrade(configuration(connection), "0002")
        connection.execute(text("UPDATE blob_objects SET state = 'live', condemned_at = NULL"))
    migrate(database_url)
    with migration_connection(database_url) as connection:
        found = connection.execute(
            text("SELECT size FROM blob_objects WHERE state = 'condemned' AND condemned_at > 0")
        )
        assert [row[0] for row in found] == [len(b"condemned")]
    play(database_url, store, clean, clean, check_clean, hours=12)
