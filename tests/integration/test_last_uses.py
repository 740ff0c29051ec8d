"""When keys and roles were last used: noted in memory, written once an hour, lost by no fault."""

from __future__ import annotations

import pytest
from sqlalchemy import bindparam, select

from cloudcore.clock import MICROSECONDS
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from cloudcore.identity.last_uses import LastUses
from cloudcore.identity.tables import access_keys, roles
from tests.databases import on_both_databases
from tests.dying import Kind
from tests.integration.counting import CountingDatabase
from tests.integration.oauth_world import World, may

HOUR = 3600 * MICROSECONDS
_KEY = Statement(select(access_keys.c.last_used_at).where(access_keys.c.id == bindparam("row_id")))
_ROLE = Statement(select(roles.c.last_used_at).where(roles.c.id == bindparam("row_id")))


class Failing(CountingDatabase):
    """Fails every write until it is mended."""

    is_broken = True

    async def before(self, kind: Kind, call: object) -> None:
        if kind == "write_relaxed" and self.is_broken:
            raise Unavailable("injected")
        await super().before(kind, call)


async def last_use(world: World, statement: Statement, row_id: str) -> int | None:
    row = await world.database.read(lambda tx: tx.row(statement, row_id=row_id))
    assert row is not None
    found: int | None = row[0]
    return found


@on_both_databases
async def test_a_use_is_of_the_key_or_of_the_role_that_acts(oauth: World) -> None:
    acme = await oauth.add_account("acme")
    ci = await oauth.add_program(acme, "ci", may("iam:AssumeRole", "test:*"))
    role = await oauth.add_role(acme, "deploy", ci.crn)
    await oauth.add_policy(acme, may("test:*"), role_id=role.id)
    start = oauth.now - oauth.now % HOUR
    oauth.pass_time(1800)
    token = await oauth.token_of(ci)
    session = (await oauth.assume(token, role.id)).json()["access_token"]
    await oauth.uses.flush()
    assert await last_use(oauth, _KEY, ci.key_id) == start
    assert await last_use(oauth, _ROLE, role.id) is None

    oauth.pass_time(1800)
    for _ in range(2):
        assert await oauth.things(session) == 200
    assert await last_use(oauth, _ROLE, role.id) is None  # a request waits for no write
    await oauth.uses.flush()
    assert await last_use(oauth, _KEY, ci.key_id) == start
    assert await last_use(oauth, _ROLE, role.id) == start + HOUR


@on_both_databases
async def test_nothing_was_used_before_it_was_created(oauth: World) -> None:
    oauth.pass_time(1500)
    acme, created = await oauth.add_account("acme"), oauth.now
    ci = await oauth.add_program(acme, "ci", may("iam:AssumeRole", "test:*"))
    role = await oauth.add_role(acme, "deploy", ci.crn)
    await oauth.add_policy(acme, may("test:*"), role_id=role.id)
    for seconds, used in ((60, created), (120, created), (3600, created - created % HOUR + HOUR)):
        oauth.pass_time(seconds)
        token = await oauth.token_of(ci)
        session = (await oauth.assume(token, role.id)).json()["access_token"]
        assert await oauth.things(session) == 200
        await oauth.uses.flush()
        assert await last_use(oauth, _KEY, ci.key_id) == used
        assert await last_use(oauth, _ROLE, role.id) == used


async def test_an_hour_takes_one_write_and_a_fault_loses_none(oauth: World) -> None:
    ci = await oauth.add_program(await oauth.add_account("acme"), "ci", may("test:*"))
    database = Failing(oauth.database)
    uses = LastUses(database, lambda: oauth.now)
    uses.note_key(ci.key_id)
    with pytest.raises(Unavailable):
        await uses.flush()
    database.is_broken = False
    written = []
    for minutes in (0, 10, 40, 10):
        oauth.pass_time(minutes * 60)
        for _ in range(5):
            uses.note_key(ci.key_id)
        before = len(database.seen)
        await uses.flush()
        written.append(len(database.seen) - before)
    assert written == [1, 0, 0, 1]
    assert await last_use(oauth, _KEY, ci.key_id) == oauth.now - oauth.now % HOUR
