"""Who may fetch a blob, if another worker ends at the same moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, Final

import pytest

from cloudcore.db.base import Connection, Database, P, Row, T
from cloudcore.db.statement import Statement
from registry.oci.digest import digest_of
from tests.dripping_upstream import DrippingUpstream
from tests.integration.counting import CountingConnection
from tests.integration.fills_world import MortalDatabase, fills_world

BLOB: Final = bytes(range(256)) * 4096
DIGEST: Final = digest_of(BLOB)
_WAIT_SECONDS: Final = 60

pytestmark = pytest.mark.anyio


class Pausing(CountingConnection):
    """Waits before the row of a fill is inserted."""

    def __init__(self, connection: Connection, database: LateDatabase) -> None:
        super().__init__(connection, [])
        self._database = database

    def row(self, statement: Statement, /, **parameters: object) -> Row | None:
        if parameters.keys() == {"account_id", "digest", "upload_id"}:
            self._database.is_there.set()
            assert self._database.may_go_on.wait(_WAIT_SECONDS)
        return super().row(statement, **parameters)


class LateDatabase(MortalDatabase):
    """A database whose transactions wait before they insert the row of a fill."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type] # as its base has it
        self.is_there = threading.Event()
        self.may_go_on = threading.Event()

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def paused(tx: Connection) -> T:
            return change(Pausing(tx, self), *args, **kwargs)

        return await super().write(paused)


@pytest.mark.postgresql
async def test_a_fill_that_ends_while_another_begins_is_not_repeated(
    postgresql_database: str, tmp_path: Path
) -> None:
    """On SQLite, no transaction of one writer ends in the middle of that of another."""
    upstream = DrippingUpstream(BLOB)
    kinds = iter((MortalDatabase, LateDatabase))

    def around(database: Database) -> Database:
        return next(kinds)(database)

    async with fills_world(
        postgresql_database, tmp_path, upstream, count=2, around=around
    ) as world:
        first, late = world.workers
        database = late.ctx.database
        assert isinstance(database, LateDatabase)
        pull = asyncio.create_task(late.pull(DIGEST))
        try:
            assert await asyncio.to_thread(database.is_there.wait, _WAIT_SECONDS)
            assert await first.pull(DIGEST) == BLOB
            await first.ctx.fills.settled()
        finally:
            database.may_go_on.set()
        assert await pull == BLOB
        assert len(upstream.asked) == 1
        assert await world.left() == (0, 0, 1)
