"""Several first accounts at once: one is made, whatever the others are called."""

from __future__ import annotations

import asyncio

from cloudcore.clock import uuid7
from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.errors import Conflict
from cloudcore.identity.bootstrap import FirstCredentials, create_first_account
from cloudcore.keyring import Keyring
from tests.control_plane import count_rows
from tests.dying import Kind, PassingDatabase

RIVALS = 4


class MeetingDatabase(PassingDatabase):
    """Holds a change back until all rivals have come with theirs."""

    def __init__(self, database: Database, meeting: asyncio.Barrier) -> None:
        super().__init__(database)
        self._meeting = meeting

    async def before(self, kind: Kind, _call: object) -> None:
        if kind == "write":
            await self._meeting.wait()


async def test_rivals_make_one_first_account(database_url: str) -> None:
    """No row of theirs is the same, so nothing but the lock stands between them."""

    async def begin(database: Database, rival: int) -> FirstCredentials | Conflict:
        keyring = Keyring(bytes([rival]) * 32)
        names = {"handle": f"rival-{rival}", "email": f"rival-{rival}@example.org"}
        try:
            return await create_first_account(database, keyring, uuid7, 1_000, **names)
        except Conflict as refused:
            return refused

    async def race() -> list[FirstCredentials | Conflict]:
        meeting = asyncio.Barrier(RIVALS)
        databases = [open_database(database_url) for _ in range(RIVALS)]
        try:
            return await asyncio.gather(
                *(
                    begin(MeetingDatabase(database, meeting), rival)
                    for rival, database in enumerate(databases)
                )
            )
        finally:
            for database in databases:
                await database.close()

    outcomes = await race()
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        *["Conflict"] * (RIVALS - 1),
        "FirstCredentials",
    ]
    assert count_rows(database_url, "accounts") == 1
    assert count_rows(database_url, "users") == 1
    assert count_rows(database_url, "access_keys") == 1
