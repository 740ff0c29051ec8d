"""Rows of the audit log: what is kept, found and counted, and the one row of a run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

import msgspec
import pytest

from cloudcore.audit import rows
from cloudcore.audit.family import AUDIT
from cloudcore.audit.log import MAX_PENDING, AuditLog, AuditNeeds
from cloudcore.audit.rows import WINDOW, AuditFilter, AuditPage, AuditRow, audit_events, list_events
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database, OutcomeUnknown
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from cloudcore.iam.audit import AuditClient, AuditEvent
from cloudcore.iam.principal import SourceIdentity
from tests.databases import on_both_databases, opened
from tests.integration.lifecycle_world import LifecycleWorld

START = 1_800_000_000 * MICROSECONDS
OWNER = uuid7(START)
ANN = SourceIdentity("crn:iam::o:user/ann", "ann@example.com", "ann@example.com")
CLIENT = AuditClient("control", "198.51.100.7", "curl/8", "one")

_CHANGE = Statement(audit_events.update().values(principal=audit_events.c.action))
_RAISE = Statement(audit_events.update().values(times=audit_events.c.times + audit_events.c.times))


@pytest.fixture
async def database(metadata_url: str) -> AsyncIterator[Database]:
    async with opened(metadata_url) as database:
        yield database


def event(
    number: int, action: str = "iam:CreateRole", resource: str = "crn:a:b:c:d/e"
) -> AuditEvent:
    return AuditEvent(
        id=uuid7(START + number * 1000),
        owner_id=OWNER,
        occurred_at=START + number,
        action=action,
        resources=(resource,),
        principal="crn:iam::o:role/ops",
        source=ANN,
        client=CLIENT,
        details={"number": number},
    )


REFUSAL = event(1)._replace(outcome="refused", id="")


async def add(database: Database, *events: AuditEvent) -> None:
    def insert(tx: Connection) -> None:
        for each in events:
            rows.add_event(tx, each)

    await database.write(insert)


def execute(tx: Connection, statement: Statement) -> None:
    tx.execute(statement)


async def found(database: Database, owner_id: str = OWNER) -> Sequence[AuditRow]:
    """Return the events of an owner, the newest first."""
    most = 2 * MAX_PENDING
    return (await database.read(rows.list_events, owner_id, AuditFilter(), None, most)).rows


async def listed(database: Database, wanted: AuditFilter, limit: int = 50) -> list[int]:
    """Return the places of all events that are found, page by page."""
    places: list[int] = []
    after: tuple[int, str] | None = None
    while True:
        page: AuditPage = await database.read(rows.list_events, OWNER, wanted, after, limit)
        assert len(page.rows) <= limit
        places += [row.occurred_at - START for row in page.rows]
        after = page.after
        if after is None:
            return places


@on_both_databases
async def test_what_was_done_is_never_changed(database: Database) -> None:
    await add(database, event(1))
    for statement in (_CHANGE, _RAISE):
        with pytest.raises(Exception, match="never changed"):
            await database.write(execute, statement)
    (row,) = await found(database)
    assert (row.principal, row.times) == ("crn:iam::o:role/ops", 1)


@on_both_databases
async def test_events_end_with_their_age_alone(database: Database) -> None:
    await add(database, *(event(number) for number in range(5)))
    assert await database.write_relaxed(rows.forget_events, START + 2) == 3
    assert await listed(database, AuditFilter()) == [4, 3]


async def test_the_timer_deletes_what_is_older_than_the_setting(database: Database) -> None:
    async def nobody(_ctx: object, _crn: str) -> None:
        return None

    await add(database, event(0), event(2 * MICROSECONDS))
    needs = AuditNeeds(
        database=database,
        clock=lambda: START + 60 * MICROSECONDS,
        kept_seconds=59,
        named_resource=lambda _account_id, name: name,
        membership_policy=nobody,
    )
    (chore,) = AUDIT.runtime.schedule(needs)
    await chore.run()
    assert await listed(database, AuditFilter()) == [2 * MICROSECONDS]


@on_both_databases
async def test_filters_find_what_matches_and_pages_repeat_nothing(database: Database) -> None:
    await add(
        database,
        event(1, "iam:CreateRole", "crn:iam::c:role/a"),
        event(2, "iam:DeleteRole", "crn:iam::c:role/ab"),
        event(3, "test:DeleteThing", "crn:test::c:thing/%_"),
        event(4, "iam:CreateRole", "crn:iam::c:role/a")._replace(source=None, principal=""),
        event(4, "iam:CreateRole", "crn:iam::c:role/a")._replace(owner_id=uuid7(START)),
    )
    for wanted, numbers in (
        (AuditFilter(), [4, 3, 2, 1]),
        (AuditFilter(action="iam:CreateRole"), [4, 1]),
        (AuditFilter(action="iam:*"), [4, 2, 1]),
        (AuditFilter(resource="crn:iam::c:role/a"), [4, 1]),
        (AuditFilter(resource="crn:iam::c:role/a*"), [4, 2, 1]),
        (AuditFilter(resource="crn:test::c:thing/%_"), [3]),
        (AuditFilter(resource="crn:iam::c:role/a", action="iam:D*"), []),
        (AuditFilter(who="ann@example.com"), [3, 2, 1]),
        (AuditFilter(who=ANN.crn), [3, 2, 1]),
        (AuditFilter(who="crn:iam::o:role/ops"), [3, 2, 1]),
        (AuditFilter(who="crn:iam::o:role/op"), []),
        (AuditFilter(since=START + 2, until=START + 4), [3, 2]),
        (AuditFilter(outcome="refused"), []),
    ):
        assert await listed(database, wanted) == numbers, wanted
        assert await listed(database, wanted, limit=1) == numbers, wanted


@on_both_databases
async def test_a_rare_event_is_found_behind_many_others(database: Database) -> None:
    """A page looks at a window of events, and tells where to look on."""
    rare = event(0, "iam:DeleteRole", "crn:a:b:c:rare/e")
    await add(database, rare, *(event(number) for number in range(1, 2 * WINDOW + 10)))
    wanted = AuditFilter(action="iam:DeleteRole")
    first = await database.read(rows.list_events, OWNER, wanted, None, 9)
    assert not first.rows
    assert first.after is not None
    assert await listed(database, wanted) == [0]
    by_name = AuditFilter(resource="crn:a:b:c:rare/e")
    assert (await database.read(rows.list_events, OWNER, by_name, None, 9)).rows  # by its index


@on_both_databases
async def test_a_flood_of_refusals_is_one_row_an_hour(database: Database) -> None:
    log = AuditLog(database)
    for number in range(500):
        log.note_refusal(REFUSAL._replace(occurred_at=START + number))
    await log.flush()
    log.note_refusal(REFUSAL._replace(occurred_at=START + 600, resources=("crn:a:b:c:d/last",)))
    await AuditLog(database).flush()  # another process
    await log.flush()
    log.note_refusal(REFUSAL._replace(occurred_at=START + 3600 * MICROSECONDS))
    await log.flush()
    second, first = await found(database)
    assert (first.times, first.resource, first.last_at) == (501, "crn:a:b:c:d/last", START + 600)
    assert (second.times, second.outcome) == (1, "refused")


async def test_persons_who_are_refused_in_one_role_are_told_apart(database: Database) -> None:
    log = AuditLog(database)
    bob = SourceIdentity("crn:iam::o:user/bob", "bob@example.com", "bob")
    for source in (ANN, bob, ANN, None, bob._replace(session_name="friday")):
        log.note_refusal(REFUSAL._replace(source=source))
    await log.flush()
    assert {(row.source_name, row.session_name, row.times) for row in await found(database)} == {
        ("ann@example.com", "ann@example.com", 2),
        ("bob@example.com", "friday", 2),
        (None, None, 1),
    }


class AwayDatabase:
    """Fails the writes numbered in `fails`, and calls `meanwhile` before it does."""

    def __init__(self, database: Database, fails: dict[int, Exception]) -> None:
        self._database = database
        self._fails = fails
        self._written = 0
        self.meanwhile: Callable[[], None] = lambda: None

    async def write_relaxed(self, change: Callable[..., object], *args: object) -> object:
        """Write, or fail."""
        self._written += 1
        if error := self._fails.get(self._written):
            self.meanwhile()
            raise error
        return await self._database.write_relaxed(change, *args)


async def test_refusals_wait_while_the_database_is_away(database: Database) -> None:
    away = AwayDatabase(database, {1: Unavailable("away"), 3: OutcomeUnknown("broke")})
    log = AuditLog(cast("Database", away))

    def note(name: str) -> None:
        log.note_refusal(REFUSAL._replace(action=f"iam:{name}"))

    for name in ("One", "Two", "Two", "Three"):
        note(name)
    away.meanwhile = lambda: note("Three")
    for _ in range(2):
        with pytest.raises(Unavailable):
            await log.flush()
    await log.flush()
    refusals = await found(database)
    times = {row.action: row.times for row in refusals}
    assert times == {"iam:One": 1, "iam:Two": 2, "iam:Three": 3}
    assert {row.occurred_at for row in refusals} == {START + 1}


async def test_a_refusal_that_cannot_be_written_holds_up_no_other(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(cast("Database", AwayDatabase(database, {1: ValueError("no such text")})))
    for name in ("One", "Two", "Three"):
        log.note_refusal(REFUSAL._replace(action=f"iam:{name}"))
    await log.flush()
    assert "refusals of iam:Three could not be recorded" in caplog.text
    assert {row.action for row in await found(database)} == {"iam:One", "iam:Two"}


async def test_details_are_bounded(database: Database) -> None:
    deleted = {f"sha256:{number:064}": [f"v{number}"] for number in range(1000)}
    details = {"deleted": deleted, "deleted_count": 1000, "not_deleted_count": 3}
    await add(database, event(1)._replace(details=details))
    (row,) = await found(database)
    told = json.loads(row.details)
    assert rows.MAX_DETAILS - 2048 < len(row.details) <= rows.MAX_DETAILS
    kept = told.pop("deleted")
    assert list(kept.items()) == list(deleted.items())[: len(kept)]
    assert told == {"cut": {"deleted": 1000}, "deleted_count": 1000, "not_deleted_count": 3}


async def test_a_flood_of_refusals_pushes_out_its_own_alone(database: Database) -> None:
    log, flooded, other = AuditLog(database), uuid7(START), uuid7(START)
    refusal = event(1)._replace(outcome="refused")
    early, late = (refusal._replace(principal=name, owner_id=other) for name in ("early", "late"))
    log.note_refusal(early)
    for number in range(2 * MAX_PENDING):
        log.note_refusal(refusal._replace(principal=f"flood{number}", owner_id=flooded))
    log.note_refusal(late)
    log.note_refusal(early)
    await log.flush()
    told = sorted((row.principal, row.times) for row in await found(database, other))
    assert told == [("early", 2), ("late", 1)]
    assert len(await found(database, flooded)) == MAX_PENDING - 2


RULE = {"priority": 1, "selector": "untagged", "older_than_days": 7}


async def events(lifecycle: LifecycleWorld) -> list[AuditRow]:
    """Return the events of runs."""
    wanted = AuditFilter(action="registry:RunLifecyclePolicy")
    page = await lifecycle.install.database.read(list_events, lifecycle.account.id, wanted, None, 9)
    return list(page.rows)


async def test_a_run_is_one_event_whatever_it_deleted(lifecycle: LifecycleWorld) -> None:
    await lifecycle.push_image("one")
    await lifecycle.push_image("two")
    await lifecycle.push_image("kept", "v1")
    await lifecycle.pass_days(8)
    run = await lifecycle.run(RULE)
    assert run["expired"] == 2
    (event,) = await events(lifecycle)
    details = msgspec.json.decode(event.details)
    assert details["run"].endswith(f":lifecycle-run/{run['id']}")
    assert (details["state"], details["expired"]) == ("succeeded", 2)
    assert event.principal == run["started_by"]
    assert (event.source_name, event.plane) == (run["started_by_source"]["name"], None)
    assert event.resource.endswith(f":repository/{lifecycle.name.partition('/')[2]}")
    await lifecycle.run()
    assert len(await events(lifecycle)) == 1  # the second run deleted nothing
