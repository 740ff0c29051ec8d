"""What only PostgreSQL can do to us: rivals, lost connections, lost answers, weak settings."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import ExitStack, suppress
from typing import Final

import psycopg
import pytest
from sqlalchemy import bindparam, text

from cloudcore.db import postgresql
from cloudcore.db.base import CommitMark, Connection, Database, OutcomeUnknown
from cloudcore.db.opening import open_database
from cloudcore.db.refusals import Refusals
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from cloudcore.identity.tables import accounts
from registry.metadata import database as migrating
from registry.metadata.database import migrate
from tests.commit_proxy import commit_proxy
from tests.databases import add_account, lose_commits, opened
from tests.postgresql import free_port

pytestmark = pytest.mark.postgresql

END_OWN_SESSION: Final = Statement(text("SELECT pg_terminate_backend(pg_backend_pid())"))
CONFLICT: Final = Statement(text("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"))
OWN_SESSION: Final = Statement(text("SELECT pg_backend_pid()"))
SYNCHRONOUS: Final = Statement(text("SHOW synchronous_commit"))
ISOLATION: Final = Statement(text("SHOW transaction_isolation"))
COUNT_UP_QUERY: Final = (
    accounts.update()
    .where(accounts.c.handle == bindparam("wanted"))
    .values(created_at=accounts.c.created_at + text("1"))
)
COUNT_UP: Final = Statement(COUNT_UP_QUERY)
ADD_ALONE: Final = Statement(
    accounts.insert().values(
        id=text("gen_random_uuid()"),
        handle=bindparam("handle"),
        status=text("'active'"),
        auto_create_repositories=text("true"),
        created_at=text("0"),
    ),
    is_whole=True,
)
COUNT_UP_ALONE: Final = Statement(COUNT_UP_QUERY, is_whole=True)
SLEEP: Final = Statement(text("SELECT pg_sleep(60)"))


@pytest.fixture
def metadata_url(postgresql_database: str) -> str:
    """Return the URL of the one database of these tests."""
    return postgresql_database


def end_other_sessions(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def end_sleeps(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE state = 'active'"
            " AND datname = current_database() AND query LIKE 'SELECT pg_sleep(60)%'"
        )


async def test_calls_one_after_the_other_share_a_session(database: Database) -> None:
    def session(connection: Connection) -> object:
        return connection.row(OWN_SESSION)

    for call in (database.read, database.write):
        await asyncio.gather(*(call(session) for _ in range(8)))
        assert len({await call(session) for _ in range(8)}) == 1


async def test_a_deadlock_is_tried_again(database: Database) -> None:
    both_hold_one = threading.Barrier(2)
    runs = []

    def count(connection: Connection, first: str, second: str) -> None:
        runs.append(first)
        connection.execute(COUNT_UP, wanted=first)
        if len(runs) <= 2:
            both_hold_one.wait(30)
        connection.execute(COUNT_UP, wanted=second)

    await database.write(add_account, "a")
    await database.write(add_account, "b")
    await asyncio.gather(
        database.write(count, "a", "b"),
        database.write(count, "b", "a"),
    )
    assert len(runs) > 2
    counted = Statement(text("SELECT created_at FROM accounts"))
    assert await database.read(lambda connection: connection.rows(counted)) == [(2,), (2,)]


async def test_a_conflict_is_tried_again_also_when_the_process_stops(
    postgresql_database: str,
) -> None:
    """The database is not away: what was noted can be written."""
    stopping, runs = threading.Event(), []
    stopping.set()

    def conflict_thrice(connection: Connection) -> str:
        runs.append(1)
        identity = add_account(connection, "a")
        if len(runs) <= 3:
            connection.execute(CONFLICT)
        return identity

    database = open_database(postgresql_database, stopping=stopping)
    try:
        identity = await database.write(conflict_thrice)
        assert await database.read(ids) == [identity]
    finally:
        await database.close()


async def test_a_connection_lost_before_commit_is_made_anew(
    database: Database, postgresql_database: str
) -> None:
    runs = []

    def lose_once(connection: Connection) -> str:
        runs.append(1)
        identity = add_account(connection, "a")
        if len(runs) == 1:
            connection.row(END_OWN_SESSION)
        return identity

    identity = await database.write(lose_once)
    assert len(runs) == 2
    assert await database.read(ids) == [identity]
    end_other_sessions(postgresql_database)
    assert await database.read(ids) == [identity]
    await database.write(add_account, "b")
    end_other_sessions(postgresql_database)
    await asyncio.gather(*(database.write(add_account, f"c{n}") for n in range(20)))
    await asyncio.gather(*(database.read(ids) for _ in range(20)))


@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_commit_whose_answer_is_lost_is_not_tried_again(
    postgresql_database: str, *, is_whole: bool
) -> None:
    runs = []

    def store(connection: Connection) -> None:
        runs.append(1)
        if is_whole:
            connection.execute(ADD_ALONE, handle="a")
        else:
            add_account(connection, "a")

    lose_commits(postgresql_database)
    async with opened(postgresql_database) as database:
        with pytest.raises(Unavailable, match="may or may not be kept"):
            await database.write(store)
        assert len(runs) == 1
        await database.read(ids)


async def test_a_whole_change_is_one_statement_that_is_committed_at_once(
    database: Database, postgresql_database: str
) -> None:
    """It is tried again if its connection broke while it was idle."""

    def count_up(connection: Connection, wanted: str) -> int:
        changed = connection.execute(COUNT_UP_ALONE, wanted=wanted)
        with psycopg.connect(postgresql_database) as other:
            seen = other.execute("SELECT sum(created_at) FROM accounts").fetchone()
        assert seen is not None
        return int(seen[0]) if changed else -1

    await database.write(add_account, "a")
    before = database.version()
    assert await database.write(count_up, "a") == 1
    assert database.version() != before or before is None
    end_other_sessions(postgresql_database)
    assert await database.write(count_up, "a") == 2
    assert await database.write(count_up, "b") == -1


async def test_a_whole_change_asks_first_whether_its_connection_broke_like_another(
    postgresql_database: str,
) -> None:
    """So its outcome is unknown once, not once for each connection."""
    are_all_connected = threading.Barrier(postgresql.WRITERS)
    has_tried = threading.Event()

    def count_up(connection: Connection) -> int:
        try:
            return connection.execute(COUNT_UP_ALONE, wanted="a")
        finally:
            has_tried.set()

    with commit_proxy(postgresql_database) as proxy:
        async with opened(proxy.url) as database:
            await database.write(add_account, "a")
            connect = (lambda _: are_all_connected.wait(30) for _ in range(postgresql.WRITERS))
            await asyncio.gather(*map(database.write, connect))
            proxy.arm("all break", text=b"UPDATE accounts")
            with pytest.raises(OutcomeUnknown):
                await database.write(count_up)
            proxy.forget()
            has_tried.clear()
            # The session that knows it already is kept busy, so that another one takes the change.
            _, changed = await asyncio.gather(
                database.write(lambda _: has_tried.wait(30)), database.write(count_up)
            )
            assert changed == 1


async def test_a_whole_change_takes_another_connection_if_the_last_rollback_broke_its_own(
    postgresql_database: str,
) -> None:
    def break_off(connection: Connection) -> None:
        with suppress(psycopg.OperationalError):
            connection.row(END_OWN_SESSION)
        raise LookupError

    database = postgresql.PostgresqlDatabase(postgresql_database, writers=1)
    with pytest.raises(LookupError):
        await database.write(break_off)
    with ExitStack() as others:
        for end in (end for _ in range(20) for end in socket.socketpair()):
            others.enter_context(end)  # one of them has the number of the broken one
        assert await database.write(lambda tx: tx.execute(ADD_ALONE, handle="a")) == 1
    await database.close()


async def test_each_statement_sees_what_is_committed_whatever_the_server_does_else(
    postgresql_database: str,
) -> None:
    with psycopg.connect(postgresql_database) as connection:
        connection.execute(
            f"ALTER DATABASE {connection.info.dbname}"
            " SET default_transaction_isolation = 'serializable'"
        )
    async with opened(postgresql_database) as database:
        for call in (database.read, database.write, database.write_relaxed):
            assert await call(lambda tx: tx.row(ISOLATION)) == ("read committed",)


async def test_a_failure_after_a_whole_change_changes_the_version(
    postgresql_database: str,
) -> None:
    def add(connection: Connection) -> None:
        connection.execute(ADD_ALONE, handle="a")
        raise LookupError

    mark = CommitMark()
    database = postgresql.PostgresqlDatabase(postgresql_database, mark)
    before = mark.value()
    with pytest.raises(LookupError):
        await database.write(add)
    assert mark.value() != before
    await database.close()


async def test_others_follow_a_whole_change_only_if_it_has_changed_nothing(
    database: Database,
) -> None:
    def add(connection: Connection, handle: str, *, fails: bool = False) -> int:
        changed = connection.execute(ADD_ALONE, handle=handle)
        add_account(connection, f"{handle} too")
        if fails:
            raise LookupError
        return changed

    await database.write(add_account, "a")
    with pytest.raises(LookupError):
        await database.write(add, "a", fails=True)
    assert len(await database.read(ids)) == 1
    assert await database.write(add, "a") == 0, "a constraint refuses it"
    assert len(await database.read(ids)) == 2
    with pytest.raises(RuntimeError):
        await database.write(add, "b")
    with pytest.raises(RuntimeError):
        await database.write(lambda tx: [tx.execute(ADD_ALONE, handle=each) for each in "cd"])
    assert len(await database.read(ids)) == 4


async def test_a_whole_change_within_another_is_committed_with_it(database: Database) -> None:
    def fail(connection: Connection) -> None:
        add_account(connection, "a")
        connection.execute(ADD_ALONE, handle="b")
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(fail)
    assert await database.read(ids) == []


def ids(connection: Connection) -> list[str]:
    return [row[0] for row in connection.rows(Statement(text("SELECT id FROM accounts")))]


async def test_only_relaxed_changes_skip_the_flush(database: Database) -> None:
    def setting(connection: Connection, statement: Statement) -> object:
        return connection.row(statement)

    for _ in range(10):
        assert await database.write_relaxed(setting, SYNCHRONOUS) == ("off",)
        assert await database.write(setting, SYNCHRONOUS) == ("on",)
        assert await database.write(setting, ISOLATION) == ("read committed",)


async def test_an_error_hidden_by_the_change_is_found_at_commit(database: Database) -> None:
    def hide(connection: Connection) -> None:
        add_account(connection, "a")
        try:
            connection.row(Statement(text("SELECT 1 / 0")))
        except psycopg.DataError:
            return

    with pytest.raises(RuntimeError):
        await database.write(hide)
    assert await database.read(ids) == []


def test_a_server_out_of_reach_is_unavailable() -> None:
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/nowhere"
    with pytest.raises(Unavailable):
        open_database(url)
    with pytest.raises(Unavailable):
        migrate(url)


def test_a_server_that_is_too_old_is_refused_in_words(
    postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "LEAST_POSTGRESQL", 99)
    with pytest.raises(Unavailable, match=r"is PostgreSQL \d+; this program needs 99 or newer"):
        migrate(postgresql_database)


async def test_writers_that_wait_do_not_hold_up_readers(
    database: Database, postgresql_database: str
) -> None:
    sleeping = [
        asyncio.ensure_future(database.write(lambda connection: connection.row(SLEEP)))
        for _ in range(20)
    ]
    assert await asyncio.wait_for(database.read(ids), 50) == []
    while not all(write.done() for write in sleeping):
        end_sleeps(postgresql_database)
        await asyncio.wait(sleeping, timeout=0.05)
    assert {type(write.exception()) for write in sleeping} == {Unavailable}


async def test_weak_durability_is_warned_of(
    postgresql_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgresql_database.rpartition("/")[2]
    with psycopg.connect(postgresql_database, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())
    with caplog.at_level(logging.WARNING):
        async with opened(postgresql_database) as database:
            await database.read(ids)
    assert [record.getMessage() for record in caplog.records] == [
        "PostgreSQL runs with synchronous_commit = off: a crash may lose changes"
    ]


async def test_what_the_driver_says_is_for_the_log_alone(
    database: Database,
    postgresql_database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It names host, port and user, and statements."""
    words = 'connection to server at "10.9.8.7", port 5432 failed: FATAL: no user "secret"'

    def away(url: str) -> psycopg.Connection:
        raise psycopg.OperationalError(f"{words}: {url}")

    with caplog.at_level(logging.WARNING):
        monkeypatch.setattr(postgresql, "_refusals", Refusals())
        monkeypatch.setattr(postgresql, "PATIENCE_SECONDS", 0)
        with pytest.raises(Unavailable) as ended:
            await database.write(lambda tx: tx.row(END_OWN_SESSION))
        assert ended.value.message == "the database cannot do this now"
        monkeypatch.setattr(postgresql, "connect", away)
        end_other_sessions(postgresql_database)
        for call in (database.read, database.write, database.write_relaxed):
            with pytest.raises(Unavailable) as refused:
                await call(lambda tx: tx.row(ISOLATION))
            assert refused.value.message == "the database cannot do this now"
            assert not refused.value.params
    assert "the database cannot do this now: " in caplog.text


async def test_a_lost_answer_to_commit_names_nobody(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = postgresql._command

    def losing(raw: psycopg.Connection, words: bytes) -> bytes | None:
        if words == b"COMMIT":
            raise psycopg.OperationalError('server at "10.9.8.7" closed the connection')
        return command(raw, words)

    monkeypatch.setattr(postgresql, "_command", losing)
    with pytest.raises(Unavailable) as refused:
        await database.write(add_account, "a")
    assert "10.9.8.7" not in refused.value.message
