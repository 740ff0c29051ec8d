"""The contract of `cloudcore.db.base.Database`, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NoReturn

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import bindparam, func, select

from cloudcore.db.base import Connection, ConstraintViolated, Database, Large, Row
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from cloudcore.identity.tables import accounts
from registry.errors import NameUnknown
from tests.databases import (
    add_account,
    on_both_databases,
    opened,
    program,
    program_environment,
    with_database,
)

pytestmark = on_both_databases

FIND: Final = Statement(
    select(accounts.c.id, accounts.c.handle, accounts.c.auto_create_repositories).where(
        accounts.c.handle == bindparam("wanted")
    )
)
HANDLES: Final = Statement(select(accounts.c.handle).order_by(accounts.c.handle))
ADD_UP: Final = Statement(select(func.sum(accounts.c.created_at)))
COUNT_UP: Final = Statement(
    accounts.update()
    .where(accounts.c.handle == bindparam("wanted"))
    .values(created_at=accounts.c.created_at + bindparam("change"))
)


def find(connection: Connection, handle: str) -> Row | None:
    return connection.row(FIND, wanted=handle)


def handles(connection: Connection) -> list[str]:
    return [str(row[0]) for row in connection.rows(HANDLES)]


async def test_reads_what_was_written(database: Database) -> None:
    identity = await database.write(add_account, "one")
    row = await database.read(find, "one")
    assert row is not None
    assert tuple(row) == (identity, "one", True)
    assert await database.read(find, "two") is None
    assert await database.read(lambda connection: connection.rows(FIND, wanted="two")) == []


async def test_execute_returns_how_many_rows_changed(database: Database) -> None:
    await database.write(add_account, "one")
    count = Statement(accounts.update().values(created_at=bindparam("moment")))
    find_none = Statement(accounts.delete().where(accounts.c.handle == bindparam("wanted")))
    assert await database.write(lambda connection: connection.execute(count, moment=1)) == 1
    assert await database.write(lambda c: c.execute(find_none, wanted="two")) == 0


async def test_a_sum_is_an_integer(database: Database) -> None:
    await database.write(add_account, "one")
    await database.write(lambda c: c.execute(COUNT_UP, wanted="one", change=2**60))
    row = await database.read(lambda connection: connection.row(ADD_UP))
    assert row is not None
    assert type(row[0]) is int
    assert row[0] == 2**60


async def test_another_opener_sees_a_change_when_it_is_answered(
    database: Database, database_url: str
) -> None:
    other = open_database(database_url)
    for handle in "abcdefgh":
        await database.write(add_account, handle)
        assert await other.read(find, handle) is not None
        await other.write_relaxed(add_account, handle * 2)
        assert await database.read(find, handle * 2) is not None
    await other.close()


def test_processes_see_and_count_each_others_changes(database_url: str) -> None:
    with_database(database_url, lambda database: database.write(add_account, "shared"))
    counting = [
        subprocess.Popen(
            program("tests.contract.counting", database_url, "shared", "100"),
            env=program_environment(),
        )
        for _ in range(2)
    ]
    assert [process.wait() for process in counting] == [0, 0]

    async def total(database: Database) -> Row | None:
        return await database.read(lambda connection: connection.row(ADD_UP))

    assert with_database(database_url, total) == (200,)


async def test_what_a_change_raises_rolls_it_back(database: Database) -> None:
    def fail(connection: Connection) -> NoReturn:
        add_account(connection, "gone")
        raise NameUnknown("no such repository")

    with pytest.raises(NameUnknown):
        await database.write(fail)
    with pytest.raises(NameUnknown):
        await database.write_relaxed(fail)
    assert await database.read(handles) == []
    await database.write(add_account, "kept")
    assert await database.read(handles) == ["kept"]


@pytest.mark.parametrize("raised", [StopIteration, asyncio.CancelledError])
async def test_a_change_that_raises_oddly_is_answered(
    database: Database, raised: type[BaseException]
) -> None:
    def fail(_connection: Connection) -> NoReturn:
        raise raised

    outcome = asyncio.ensure_future(database.write(fail))
    await asyncio.wait([outcome])
    assert outcome.cancelled() or outcome.exception() is not None
    await database.write(add_account, "after")


async def test_a_refused_write_fails_the_whole_change(database: Database) -> None:
    def hide_refusal(connection: Connection) -> None:
        add_account(connection, "new")
        with suppress(ConstraintViolated):
            add_account(connection, "taken")

    await database.write(add_account, "taken")
    with pytest.raises(ConstraintViolated):
        await database.write(add_account, "taken")
    with pytest.raises(ConstraintViolated):
        await database.write(hide_refusal)
    assert await database.read(handles) == ["taken"]


async def test_a_failing_change_does_not_hurt_its_neighbours(database: Database) -> None:
    def fail(connection: Connection, number: int) -> None:
        add_account(connection, f"{number:02}")
        raise NameUnknown("no such repository")

    async def change(database: Database, number: int) -> object:
        if number % 3 == 1:
            return await database.write(fail, number)
        if number % 3 == 2:
            return await database.write(add_account, "taken")
        return await database.write(add_account, f"{number:02}")

    await database.write(add_account, "taken")
    async with held_writer(database):  # so that on SQLite the rest forms one group
        changes = [asyncio.ensure_future(change(database, number)) for number in range(30)]
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [
        str,
        NameUnknown,
        ConstraintViolated,
    ] * 10
    assert await database.read(handles) == [f"{n:02}" for n in range(0, 30, 3)] + ["taken"]


class held_writer:  # noqa: N801 - used as a statement
    """Keep one change running, in its transaction, while the block runs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._started = threading.Event()
        self._release = threading.Event()

    def _hold(self, connection: Connection) -> None:
        add_account(connection, f"held-{uuid.uuid4()}")
        self._started.set()
        assert self._release.wait(30)
        raise NameUnknown("rolled back")

    async def __aenter__(self) -> None:
        self._held = asyncio.ensure_future(self._database.write(self._hold))
        assert await asyncio.to_thread(self._started.wait, 30)

    async def __aexit__(self, *raised: object) -> None:
        for _ in range(3):  # let what the block started reach the queue
            await asyncio.sleep(0)
        self._release.set()
        await asyncio.wait([self._held])
        assert isinstance(self._held.exception(), NameUnknown)


async def test_a_read_does_not_wait_for_a_running_change(database: Database) -> None:
    await database.write(add_account, "committed")
    async with held_writer(database):
        assert await database.read(handles) == ["committed"]


async def test_large_reads_take_turns_by_account_and_hold_up_no_small_one(
    database: Database,
) -> None:
    await database.write(add_account, "committed")
    begun, release, order = threading.Event(), threading.Event(), list[str]()

    def read_much(_: Connection, name: str) -> None:
        order.append(name)
        begun.set()
        assert release.wait(30)

    names = ("a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1", "c0")
    reads = [asyncio.ensure_future(database.read(Large("a", read_much), names[0]))]
    try:
        assert await asyncio.to_thread(begun.wait, 30)
        reads += [
            asyncio.ensure_future(database.read(Large(name[0], read_much), name))
            for name in names[1:]
        ]
        async with asyncio.timeout(30):
            assert await database.read(handles) == ["committed"]
    finally:
        release.set()
        await asyncio.gather(*reads)
    assert order == ["a0", "a1", "b0", "c0", "a2", "b1", "a3", "a4", "a5"]


async def test_a_caller_that_stops_waiting_stops_nothing(database_url: str) -> None:
    async with opened(database_url) as database:
        async with held_writer(database):
            cancelled = asyncio.ensure_future(database.write(add_account, "a"))
            patient = asyncio.ensure_future(database.write(add_account, "b"))
            await asyncio.sleep(0)
            cancelled.cancel()
        await patient
        assert cancelled.cancelled()
        await database.write(add_account, "c")
    async with opened(database_url) as database:
        kept = await database.read(handles)
    assert kept == ["a", "b", "c"]


def announced(connection: Connection, handle: str) -> None:
    connection.announce()
    add_account(connection, handle)


async def test_a_change_that_announces_itself_is_heard_of_once_it_is_committed(
    database: Database,
) -> None:
    heard: list[tuple[str, list[str]]] = []
    loop = asyncio.get_running_loop()

    def listen_as(name: str) -> Callable[[], None]:
        def listener() -> None:
            assert asyncio.get_running_loop() is loop
            heard.append((name, answered.copy()))

        return listener

    answered: list[str] = []
    database.listen(listen_as("first"))
    database.listen(listen_as("second"))
    for handle in "ab":
        await database.write(announced, handle)
        answered.append(handle)
    await database.write_relaxed(announced, "c")
    assert heard == [
        (name, before) for before in ([], ["a"], ["a", "b"]) for name in ("first", "second")
    ]


async def test_nothing_is_heard_of_other_changes(database: Database, database_url: str) -> None:
    """Of silent ones, of those that fail, and of those of other openers; alone and in a group."""

    def fail(connection: Connection) -> NoReturn:
        announced(connection, "gone")
        raise NameUnknown("no such repository")

    def collide(connection: Connection) -> None:
        with suppress(ConstraintViolated):
            announced(connection, "taken")

    heard: list[None] = []
    database.listen(lambda: heard.append(None))
    await database.write(add_account, "taken")
    other = open_database(database_url)
    await other.write(announced, "elsewhere")
    await other.close()
    for change in (fail, collide):
        with pytest.raises((NameUnknown, ConstraintViolated)):
            await database.write(change)
    await database.write(add_account, "silent")
    async with held_writer(database):
        group = [
            asyncio.ensure_future(changing)
            for changing in (
                database.write(fail),
                database.write(add_account, "in a group"),
                database.write(collide),
            )
        ]
    await asyncio.gather(*group, return_exceptions=True)
    assert heard == []
    await database.write(announced, "heard")
    assert heard == [None]


async def test_a_change_is_heard_of_though_its_caller_stopped_waiting(database: Database) -> None:
    heard = asyncio.Event()
    database.listen(heard.set)
    async with held_writer(database):
        cancelled = asyncio.ensure_future(database.write(announced, "a"))
        await asyncio.sleep(0)
        cancelled.cancel()
    await asyncio.wait_for(heard.wait(), 60)
    assert cancelled.cancelled()
    assert await database.read(handles) == ["a"]


async def test_close_answers_what_was_accepted_and_nothing_more(database: Database) -> None:
    changes = [asyncio.ensure_future(database.write(add_account, str(n))) for n in range(20)]
    await asyncio.sleep(0)
    await database.close()
    assert len(set(await asyncio.gather(*changes))) == 20
    with pytest.raises(Unavailable):
        await database.write(add_account, "late")
    with pytest.raises(Unavailable):
        await database.write_relaxed(add_account, "late")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_many_callers_on_either_loop(
    database_url: str, run: Callable[[Awaitable[None]], None]
) -> None:
    async def play() -> None:
        database = open_database(database_url)
        identities = await asyncio.gather(
            *(database.write(add_account, f"durable-{n}") for n in range(100)),
            *(database.write_relaxed(add_account, f"relaxed-{n}") for n in range(100)),
        )
        assert len(set(identities)) == len(await database.read(handles)) == 200
        await database.close()

    run(play())


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    callers=st.lists(
        st.lists(st.tuples(st.integers(-3, 5), st.sampled_from(["keep", "fail", "relaxed"]))),
        min_size=1,
        max_size=6,
    )
)
def test_counters_are_the_sum_of_what_was_answered(
    database_url: str, callers: list[list[tuple[int, str]]]
) -> None:
    """Whatever callers of two openers interleave, a counter is what they were told it is."""
    name = str(uuid.uuid4())

    def count(connection: Connection, change: int, manner: str) -> int:
        connection.execute(COUNT_UP, wanted=name, change=change)
        if manner == "fail":
            raise NameUnknown("no such repository")
        return change

    async def call(database: Database, changes: list[tuple[int, str]]) -> int:
        total = 0
        for change, manner in changes:
            write = database.write_relaxed if manner == "relaxed" else database.write
            with suppress(NameUnknown):
                total += await write(count, change, manner)
        return total

    async def scenario(database: Database) -> None:
        other = open_database(database_url)
        await database.write(add_account, name)
        totals = await asyncio.gather(
            *(
                call(other if number % 2 else database, changes)
                for number, changes in enumerate(callers)
            )
        )
        moment = select(accounts.c.created_at).where(accounts.c.handle == bindparam("wanted"))
        row = await database.read(lambda c: c.row(Statement(moment), wanted=name))
        assert row is not None
        assert row[0] == sum(totals)
        await other.close()

    with_database(database_url, scenario)
