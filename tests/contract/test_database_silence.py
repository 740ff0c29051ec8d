"""A PostgreSQL that says nothing, because of itself or the way to it: nobody waits for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import text

from cloudcore.db import postgresql, postgresql_link
from cloudcore.db.base import Connection, OutcomeUnknown
from cloudcore.db.postgresql import PostgresqlDatabase
from cloudcore.db.postgresql_locks import LockLost, SharedLock
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from tests.databases import add_account
from tests.relay import Relay

pytestmark = pytest.mark.postgresql

SILENT_SECONDS: Final = 0.3
SLEEP: Final = Statement(text("SELECT pg_sleep(1)"))
IDS: Final = Statement(text("SELECT id FROM accounts"))


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_link, "SILENT_SECONDS", SILENT_SECONDS)
    monkeypatch.setattr(postgresql_link, "LOOK_SECONDS", 2)  # the least that libpq takes
    monkeypatch.setattr(postgresql_link, "_GRACE_SECONDS", 0.5)
    monkeypatch.setattr(postgresql_link, "PAUSE_SECONDS", 0.2)


@pytest.fixture
def relay(postgresql_database: str) -> Iterator[Relay]:
    """Return the network before the database."""
    with Relay(int(conninfo_to_dict(postgresql_database)["port"] or 0)) as relay:
        yield relay


@pytest.fixture
def url(postgresql_database: str, relay: Relay) -> str:
    """Return the URL of the database behind the network."""
    parts = conninfo_to_dict(postgresql_database) | {"port": str(relay.port)}
    return f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


@pytest.fixture
async def database(url: str) -> AsyncIterator[PostgresqlDatabase]:
    """Return the database behind the network, with one connection of each kind."""
    opened = PostgresqlDatabase(url, readers=1, writers=1)
    yield opened
    await opened.close()


def ids(tx: Connection) -> list[str]:
    return [row[0] for row in tx.rows(IDS)]


async def test_a_statement_that_takes_long_is_waited_for(database: PostgresqlDatabase) -> None:
    await asyncio.gather(
        database.read(lambda tx: tx.row(SLEEP)), database.write(lambda tx: tx.row(SLEEP))
    )


async def test_a_connection_that_was_forgotten_on_the_way_is_made_anew(
    database: PostgresqlDatabase, relay: Relay
) -> None:
    """The server is there, and works on nothing for it."""
    identity = await database.write(add_account, "a")
    assert await database.read(ids) == [identity]
    relay.hold_present()
    assert await database.read(ids) == [identity]
    other = await database.write(add_account, "b")
    assert await database.read(ids) == [identity, other]


async def test_a_commit_whose_answer_does_not_come_may_be_kept(
    database: PostgresqlDatabase, relay: Relay
) -> None:
    def add(tx: Connection) -> str:
        made = add_account(tx, "a")
        relay.hold_present()
        return made

    with pytest.raises(OutcomeUnknown):
        await database.write(add)
    assert await database.read(ids) == []
    relay.release()


async def test_nobody_waits_for_a_server_that_is_silent(
    database: PostgresqlDatabase, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.read(ids)
    relay.hold()
    monkeypatch.setattr(postgresql, "PATIENCE_SECONDS", 1.0)
    many = await asyncio.gather(*(database.read(ids) for _ in range(20)), return_exceptions=True)
    assert {type(each) for each in many} == {Unavailable}
    # Of the start, of the reader, and a look: the others are late, and not tried one by one.
    assert relay.accepted == 3
    relay.release()
    async with asyncio.timeout(30):
        while True:
            try:
                assert await database.read(ids) == []
                break
            except Unavailable:
                continue


def test_a_lock_whose_server_is_silent_is_lost(url: str, relay: Relay) -> None:
    with SharedLock(url, "something").alone() as held:
        held.check()
        relay.hold_present()
        with pytest.raises(LockLost):
            held.check()


def test_a_server_without_room_for_a_question_is_waited_for(
    url: str, postgresql_database: str
) -> None:
    name = conninfo_to_dict(postgresql_database)["dbname"]
    with psycopg.connect(
        make_conninfo(postgresql_database, dbname="postgres"), autocommit=True
    ) as server:
        raw = postgresql_link.connect(url)
        server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        assert raw.execute("SELECT 1 FROM pg_sleep(1)").fetchone() == (1,)
        raw.close()
