"""`Database.version`: what was committed is never taken for unchanged."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import bindparam, text

from cloudcore.db.base import CommitMark, Connection, Database, OutcomeUnknown
from cloudcore.db.opening import open_database
from cloudcore.db.postgresql import PostgresqlDatabase
from cloudcore.db.postgresql_link import connect
from cloudcore.db.postgresql_watch import KNOWN_SECONDS, CommitWatch
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from tests.databases import add_account, lose_commits, on_both_databases, opened
from tests.relay import Relay

on_postgresql = pytest.mark.postgresql
COUNT: Final = Statement(text("SELECT created_at FROM accounts WHERE handle = :handle"))
COUNT_UP: Final = Statement(
    accounts.update()
    .where(accounts.c.handle == bindparam("wanted"))
    .values(created_at=accounts.c.created_at + text("1"))
)


async def known(version: Callable[[], int | None], other_than: int | None = None) -> int:
    """Wait until the version is known, and is another one; return it."""
    async with asyncio.timeout(60):
        while (found := version()) is None or found == other_than:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.001)
    return found


def count(connection: Connection, handle: str) -> int:
    found = connection.row(COUNT, handle=handle)
    assert found is not None
    return int(found[0])


def count_up(connection: Connection, handle: str) -> int:
    connection.execute(COUNT_UP, wanted=handle)
    return count(connection, handle)


@on_both_databases
async def test_a_commit_has_changed_the_version_when_it_is_answered(database: Database) -> None:
    seen = await known(database.version)
    for number in range(20):
        write = database.write if number % 2 else database.write_relaxed
        await write(add_account, f"a{number}")
        now = database.version()
        assert now != seen
        seen = now if now is not None else await known(database.version)


@on_both_databases
async def test_a_commit_elsewhere_changes_the_version(
    database: Database, database_url: str
) -> None:
    async with opened(database_url) as other:
        for number in range(5):
            seen = await known(database.version)
            await other.write_relaxed(add_account, f"a{number}")
            assert await known(database.version, seen) != seen


@on_both_databases
async def test_a_version_stays_while_nothing_is_committed(database: Database) -> None:
    seen = await known(database.version)
    for _ in range(5):
        await database.read(lambda tx: tx.rows(COUNT, handle="nobody"))
    # Whatever the server does by itself, such as analyze, ends.
    for _ in range(50):
        if await known(database.version) == seen:
            return
        seen = await known(database.version)
    pytest.fail("it changes all the time")


@on_both_databases
async def test_a_change_whose_caller_has_gone_changes_the_version(database: Database) -> None:
    seen = await known(database.version)
    began = threading.Event()

    def change(connection: Connection) -> None:
        began.set()
        add_account(connection, "a")

    caller = asyncio.ensure_future(database.write(change))
    await asyncio.to_thread(began.wait, 10)
    caller.cancel()
    assert await known(database.version, seen) != seen


def test_processes_share_a_mark() -> None:
    mark = CommitMark()
    before = mark.value()
    child = os.fork()
    if child == 0:
        mark.change()
        os._exit(0)
    os.waitpid(child, 0)
    assert mark.value() != before
    assert mark.value() == mark.value()


@on_postgresql
async def test_a_commit_of_another_worker_is_known_when_it_is_answered(
    postgresql_database: str,
) -> None:
    mark = CommitMark()
    async with AsyncExitStack() as stack:
        workers = [open_database(postgresql_database, mark) for _ in range(2)]
        for worker in workers:
            stack.push_async_callback(worker.close)
        for number in range(20):
            seen = await known(workers[0].version)
            await workers[1].write(add_account, f"a{number}")
            assert workers[0].version() != seen


@on_postgresql
async def test_an_unknown_outcome_changes_the_version(
    database: Database, postgresql_database: str
) -> None:
    lose_commits(postgresql_database)
    seen = await known(database.version)
    with pytest.raises(OutcomeUnknown):
        await database.write(add_account, "a")
    assert database.version() != seen


@on_postgresql
async def test_a_watch_whose_session_is_ended_starts_anew(
    database: Database, postgresql_database: str
) -> None:
    seen = await known(database.version)
    for _ in range(3):
        with psycopg.connect(postgresql_database, autocommit=True) as connection:
            ended: list[tuple[bool]] = []
            while not ended:  # the new session may not have asked yet
                ended = connection.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND query LIKE '%pg_current_snapshot()'"
                ).fetchall()
        assert ended == [(True,)]
        now = await known(database.version, seen)
        assert now != seen  # it may be another server
        seen = now


@on_postgresql
async def test_nothing_is_known_while_no_session_can_be_opened(postgresql_database: str) -> None:
    away = True

    def connect_if_there() -> psycopg.Connection:
        if away:
            raise psycopg.OperationalError("connection refused")
        return connect(postgresql_database)

    watch = CommitWatch(connect_if_there)
    try:
        ended = time.monotonic() + 2 * KNOWN_SECONDS
        while time.monotonic() < ended:
            assert watch.changes() is None
            await asyncio.sleep(0)
        away = False
        await known(watch.changes)
    finally:
        watch.stop()
        watch.join()


@on_postgresql
async def test_nothing_is_known_while_the_server_is_out_of_reach(
    postgresql_database: str,
) -> None:
    port = int(conninfo_to_dict(postgresql_database)["port"] or 0)
    with Relay(port) as relay:
        watch = CommitWatch(
            partial(connect, make_conninfo(postgresql_database, port=str(relay.port)))
        )
        try:
            seen = await known(watch.changes)
            relay.hold()
            async with asyncio.timeout(60):
                while watch.changes() is not None:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.001)
            with psycopg.connect(postgresql_database) as connection:
                connection.execute("CREATE TABLE something (id int)")
            assert watch.changes() is None
            relay.release()
            assert await known(watch.changes) != seen
            seen = await known(watch.changes)
            relay.cut()
            assert await known(watch.changes, seen) != seen
        finally:
            watch.stop()
            watch.join()


@on_postgresql
async def test_a_watch_that_nobody_asks_has_no_session(
    database: Database, postgresql_database: str
) -> None:
    """A command that changes something pays for no watch."""
    await database.write(add_account, "a")

    def sessions() -> list[psycopg.rows.TupleRow]:
        with psycopg.connect(postgresql_database) as connection:
            return connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_current_snapshot()'"
                " AND datname = current_database()"
            ).fetchall()

    assert sessions() == []
    await known(database.version)
    assert len(sessions()) == 1


class Kept:
    """What a worker keeps of one account, as answers are kept: while the version stays."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: tuple[int, int] | None = None
        self.hits = 0

    async def get(self) -> int:
        version = self._database.version()
        if self._kept is not None and self._kept[0] == version:
            self.hits += 1
            return self._kept[1]
        value = await self._database.read(count, "a")
        if version is not None and self._database.version() == version:
            self._kept = (version, value)
        return value


@on_postgresql
async def test_two_workers_and_another_node_read_nothing_older_than_promised(
    postgresql_database: str,
) -> None:
    """A counter goes up on all sides; what a reader keeps may miss only what was not answered."""
    mark = CommitMark()
    own_answered = 0
    their_answered: list[tuple[float, int]] = [(time.monotonic(), 0)]
    async with AsyncExitStack() as stack:
        first, second, elsewhere = (
            PostgresqlDatabase(postgresql_database, shared) for shared in (mark, mark, None)
        )
        for each in (first, second, elsewhere):
            stack.push_async_callback(each.close)
        await first.write(add_account, "a")
        readers = [Kept(first), Kept(first), Kept(second)]
        stop_at = time.monotonic() + 1.5

        def goes_on() -> bool:
            return time.monotonic() < stop_at or not all(each.hits for each in readers)

        async def write_here(database: Database) -> None:
            nonlocal own_answered
            while goes_on():
                own_answered = max(own_answered, await database.write_relaxed(count_up, "a"))
                await asyncio.sleep(0.004)

        async def write_there() -> None:
            while goes_on():
                value = await elsewhere.write_relaxed(count_up, "a")
                their_answered.append((time.monotonic(), value))
                await asyncio.sleep(0.007)

        async def read(kept: Kept) -> None:
            while goes_on():
                own, now = own_answered, time.monotonic()
                value = await kept.get()
                assert value >= own
                past = now - KNOWN_SECONDS
                assert value >= max(each for at, each in their_answered if at <= past or each == 0)
                await asyncio.sleep(0)

        async with asyncio.timeout(60):
            await asyncio.gather(
                write_here(first), write_here(second), write_there(), *map(read, readers)
            )
