"""Messages of queues, on both databases: redrive, retention, purge, and many clients at once.

Order, leases and depths are proved by `tests.property.test_queues_model`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import pytest
from sqlalchemy import bindparam, select

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict, InvalidInput, QuotaExceeded
from cloudcore.queue import chores, messages, needs, queues
from cloudcore.queue.message_rows import queue_messages
from cloudcore.queue.messages import lease_id, new_token
from cloudcore.queue.needs import QueueNeeds
from cloudcore.queue.queue import Queue, QueueMissing
from cloudcore.queue.queues import QUEUES
from cloudcore.quotas.limits import put_limit
from tests.databases import on_both_databases
from tests.kms_world import ACME, GLOBEX
from tests.queue_world import NO_REDRIVE, REGION, QueueWorld, Redrive, make_queue_world

HOUR: Final = 3600

_BODIES: Final = Statement(
    select(queue_messages.c.body)
    .where(queue_messages.c.queue_id == bindparam("queue_id"))
    .order_by(queue_messages.c.position)
)

pytestmark = on_both_databases


@pytest.fixture
async def world(database: Database) -> QueueWorld:
    return await make_queue_world(database)


async def test_a_lease_of_another_queue_or_account_is_none(world: QueueWorld) -> None:
    queue, other = await world.make("jobs"), await world.make("others")
    foreign = await world.make("jobs", account_id=GLOBEX)
    await world.send(queue, "a")
    (leased,) = await world.lease(queue)
    forged = lease_id(leased.message.id, new_token())
    for place in (other, foreign):
        assert await world.acknowledge(place, leased.lease_id) == ["NOT_FOUND"]
        assert await world.extend(place, 9, leased.lease_id) == ["NOT_FOUND"]
    for text in ("", "x", "ä" * 43, "!" * 43, "A" * 43, "A" * 42 + "B", leased.lease_id.swapcase()):
        assert await world.acknowledge(queue, text) == ["NOT_FOUND"]
    # A guess at the token of a message whose id is known.
    assert await world.acknowledge(queue, forged) == ["LEASE_EXPIRED"]
    assert await world.acknowledge(queue, leased.lease_id, leased.lease_id) == [None]


async def test_a_message_leased_too_often_goes_to_the_dead_letter_queue(world: QueueWorld) -> None:
    dead = await world.make("dead")
    queue = await world.make("jobs", redrive=await world.redrive("dead", 2))
    (bad,) = await world.send(queue, "bad")
    for _ in range(2):
        assert await world.bodies(queue) == ["bad"]
        world.clock.advance(30)
    await world.send(queue, "good")
    assert await world.bodies(queue) == ["good"]
    (moved,) = await world.lease(dead)
    assert (moved.message.id, moved.message.body) == (bad, b"bad")
    assert moved.message.lease_count == 1
    assert moved.message.queued_at >= moved.message.sent_at + 60 * MICROSECONDS
    assert await world.acknowledge(dead, moved.lease_id) == [None]


async def test_a_purge_takes_what_was_sent_before_and_nothing_else(world: QueueWorld) -> None:
    queue = await world.make("jobs")
    await world.send(queue, "a", "b", "c")
    await world.send(queue, "delayed", delay=5)
    await world.lease(queue, 1)
    await world.purge(queue)
    await world.send(queue, "d")
    world.clock.advance(60)
    assert await world.bodies(queue) == ["d"]
    needs = QueueNeeds.of(world.database, world.clock)
    await chores.settle_queues(needs)
    assert await world.database.read(_rows, queue.id) == ["d"]
    # After the last row was deleted, new ones still come behind the purge.
    await world.purge(queue)
    await chores.settle_queues(needs)
    assert await world.database.read(_rows, queue.id) == []
    await world.send(queue, "e")
    assert await world.bodies(queue) == ["e"]


async def test_a_deleted_queue_is_gone_and_its_name_is_free(world: QueueWorld) -> None:
    queue = await world.make("jobs")
    await world.send(queue, *map(str, range(30)))
    await world.database.write(QUEUES.remove, queue, world.clock())
    for call in (world.send(queue, "x"), world.lease(queue)):
        with pytest.raises(QueueMissing):
            await call
    again = await world.make("jobs")
    assert await world.bodies(again) == []
    await chores.erase_deleted_queues(QueueNeeds.of(world.database, world.clock))
    assert await world.database.read(queues.list_deleted, "", 9) == []
    assert await world.database.read(_rows, queue.id) == []


async def test_a_dead_letter_queue_stays_while_it_is_one(world: QueueWorld) -> None:
    dead = await world.make("dead")
    queue = await world.make("jobs", redrive=await world.redrive("dead", 2))
    with pytest.raises(Conflict, match="the queue jobs"):
        await world.database.write(QUEUES.remove, dead, world.clock())
    with pytest.raises(InvalidInput, match="another queue"):
        await world.database.write(
            _set_redrive, world, await world.current(queue), await world.redrive("jobs", 2)
        )
    await world.database.write(_set_redrive, world, await world.current(queue), None)
    await world.database.write(QUEUES.remove, dead, world.clock())
    assert (await world.current(queue)).max_leases is None


async def test_dead_letters_do_not_come_back(world: QueueWorld) -> None:
    """Neither from the dead-letter queue itself nor by others; but many queues may share one."""
    last = await world.make("last")
    queues = [last]
    for number in range(5):
        one_more = await world.redrive(queues[-1].name, 1)
        queues.append(await world.make(f"queue-{number}", redrive=one_more))
    for queue in queues[1:]:
        with pytest.raises(InvalidInput) as raised:
            await world.database.write(
                _set_redrive, world, last, await world.redrive(queue.name, 1)
            )
        assert raised.value.params["reason"] == "cycle"
        assert (await world.current(last)).dead_letter_queue is None
    to_last = await world.redrive("last", 1)
    for queue in queues[2:]:
        await world.database.write(_set_redrive, world, await world.current(queue), to_last)
    beside = await world.redrive("queue-4", 1)
    await world.database.write(_set_redrive, world, await world.current(queues[1]), beside)


async def test_two_changes_at_once_close_no_cycle(world: QueueWorld, database_url: str) -> None:
    """Neither touches a queue of the other, and either alone is right."""
    a, b, c, d = [await world.make(name) for name in "abcd"]
    to = {name: await world.redrive(name, 1) for name in "abcd"}
    await world.database.write(_set_redrive, world, b, to["c"])
    await world.database.write(_set_redrive, world, d, to["a"])
    second = open_database(database_url)
    try:
        for _ in range(30):
            done = await asyncio.gather(
                world.database.write(_set_redrive, world, a, to["b"]),
                second.write(_set_redrive, world, c, to["d"]),
                return_exceptions=True,
            )
            refused = [each for each in done if each is not None]
            assert [type(each) for each in refused] == [InvalidInput], done
            for queue in (a, c):
                await world.database.write(_set_redrive, world, queue, None)
    finally:
        await second.close()


async def test_a_lease_beside_a_change_of_the_redrive_policy_fails_not(world: QueueWorld) -> None:
    dead = await world.make("dead")
    queue = await world.make("jobs", redrive=await world.redrive("dead", 1))
    await world.send(queue, "a")
    assert await world.bodies(queue) == ["a"]
    world.clock.advance(30)
    read_before = await world.current(queue)
    await world.database.write(_set_redrive, world, read_before, None)
    await world.database.write(QUEUES.remove, dead, world.clock())
    await world.database.write(messages.settle, read_before, world.clock())
    assert await world.bodies(queue) == ["a"]


async def test_what_is_due_is_moved_on_without_a_consumer(world: QueueWorld) -> None:
    dead = await world.make("dead")
    queue = await world.make("jobs", redrive=await world.redrive("dead", 1))
    await world.send(queue, *(f"bad-{number:03}" for number in range(250)))
    for _ in range(3):
        await world.lease(queue, 100)
    await world.send(queue, "kept")
    world.clock.advance(30)
    await chores.settle_queues(QueueNeeds.of(world.database, world.clock))
    assert await world.bodies(queue) == ["kept"]
    assert await world.bodies(dead, 3) == ["bad-000", "bad-001", "bad-002"]
    assert (await world.depth(dead)).visible == 247
    world.clock.advance(2 * HOUR)
    await chores.settle_queues(QueueNeeds.of(world.database, world.clock))
    assert await world.database.read(_rows, dead.id) == []


async def test_a_full_queue_takes_no_more(world: QueueWorld) -> None:
    queue = await world.make("jobs")
    await world.database.write(put_limit, queue.account_id, "queue_messages", 3, 1)
    await world.send(queue, "a", "b", "c")
    with pytest.raises(QuotaExceeded, match="at most 3 messages"):
        await world.send(queue, "d")
    (leased,) = await world.lease(queue, 1)
    await world.acknowledge(queue, leased.lease_id)
    await world.database.write(put_limit, queue.account_id, "queue_bytes", 2, 1)
    with pytest.raises(QuotaExceeded, match="at most 2 bytes"):
        await world.send(queue, "d")


async def test_no_message_is_leased_twice_at_once(world: QueueWorld, database_url: str) -> None:
    queue = await world.make("jobs")
    for _ in range(5):
        await world.send(queue, *(f"{number}" for number in range(40)))
    second = open_database(database_url)
    there = QueueWorld(second, world.clock)
    seen: list[str] = []

    async def consume(place: QueueWorld) -> None:
        while leased := await place.lease(queue, 7):
            seen.extend(each.message.id for each in leased)
            done = await place.acknowledge(queue, *(each.lease_id for each in leased))
            assert done == [None] * len(leased)

    try:
        await asyncio.gather(*(consume(place) for place in (world, there) for _ in range(4)))
    finally:
        await second.close()
    # On PostgreSQL a consumer may skip what another has locked, and find nothing else.
    while leased := await world.lease(queue, 100):
        seen.extend(each.message.id for each in leased)
    assert len(seen) == len(set(seen)) == 200


async def test_a_send_that_returned_is_never_lost_to_a_purge(world: QueueWorld) -> None:
    """Senders beside purges: what is not seen again was sent before some purge had ended."""
    queue = await world.make("jobs")
    after_last: list[str] = []
    is_over = asyncio.Event()

    async def send(number: int) -> None:
        count = 0
        while not is_over.is_set():
            count += 1
            await world.send(queue, f"{number}-{count}")

    async def purge() -> None:
        for _ in range(10):
            await world.purge(queue)
        is_over.set()

    await asyncio.gather(purge(), *(send(number) for number in range(4)))
    after_last = [f"last-{number}" for number in range(20)]
    await world.send(queue, *after_last)
    found: list[str] = []
    while bodies := await world.bodies(queue, 100):
        found += bodies
    assert found[-20:] == after_last


async def test_another_family_sends_in_its_own_transaction(world: QueueWorld) -> None:
    queue = await world.make("jobs")
    queues = needs.Queues(REGION, world.clock)
    for reference in (
        queue.id,
        queue.id.upper(),
        queue.crn,
        "jobs",
        queue.crn.replace(ACME, "acme"),
    ):
        found = await world.database.read(queues.resolve, ACME, reference, None)
        assert found == queue
    for reference in ("crn:queue:local:globex:queue/jobs", queue.crn.replace("local", "mars")):
        with pytest.raises(InvalidInput, match="endpoint: must be"):
            await world.database.read(
                partial(queues.resolve, field="endpoint"), ACME, reference, None
            )
    with pytest.raises(QueueMissing):
        await world.database.read(queues.resolve, GLOBEX, queue.id, None)

    class Undone(Exception):
        pass

    def undone(tx: object) -> None:
        queues.send(tx, ACME, queue.id, "x", {})  # type: ignore[arg-type]
        raise Undone

    with pytest.raises(Undone):
        await world.database.write(undone)
    sent = await world.database.write(queues.send, ACME, queue.id, "y", {"kind": "event"})
    (leased,) = await world.lease(queue)
    assert leased.message.id == sent
    assert (leased.message.body, leased.message.attributes) == (b"y", {"kind": "event"})


def _rows(tx: Connection, queue_id: str) -> list[str]:
    return [bytes(row[0]).decode() for row in tx.rows(_BODIES, queue_id=queue_id)]


def _set_redrive(tx: Connection, world: QueueWorld, queue: Queue, redrive: Redrive | None) -> None:
    QUEUES.update(tx, queue, (redrive or NO_REDRIVE)._asdict(), world.clock())
