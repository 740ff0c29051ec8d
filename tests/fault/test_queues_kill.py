"""Consumers killed at random moments: no message is lost, none comes after its acknowledgement."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Final

import pytest

from cloudcore.clock import system_clock
from cloudcore.db.base import Database
from cloudcore.queue.queues import ROWS
from tests.databases import with_database
from tests.inprocess import ManualClock
from tests.jobs import until
from tests.kms_world import ACME
from tests.loaded import start_worker
from tests.queue_world import QueueWorld, make_queue_world

CONSUMER: Final = "tests.fault.queue_consumer"
MESSAGES: Final = 40


class SystemClock(ManualClock):
    """The clock of this machine."""

    def __call__(self) -> int:
        return system_clock()


@pytest.mark.parametrize(
    ("kind", "cycles"),
    [("sqlite", 3), pytest.param("postgresql", 2, marks=pytest.mark.postgresql)],
)
def test_a_message_whose_consumer_was_killed_is_delivered_again(
    request: pytest.FixtureRequest, kind: str, cycles: int
) -> None:
    """Two consumers share a queue; one after the other is killed and replaced."""
    url: str = request.getfixturevalue(f"{kind}_database")
    made: list[tuple[str, list[str]]] = []

    async def fill(database: Database) -> None:
        world = await make_queue_world(database)
        world.clock = SystemClock()  # consumers have no other
        queue = await world.make("jobs")
        sent = await world.send(queue, *map(str, range(MESSAGES)))
        made.append((queue.id, sent))

    with_database(url, fill)
    ((queue_id, sent),) = made
    lines: list[str] = []
    consumers = [start_worker(CONSUMER, url, queue_id) for _ in range(2)]

    async def drain(database: Database) -> None:
        world = QueueWorld(database, SystemClock())
        queue = await database.read(ROWS.find, ACME, queue_id)
        assert queue is not None

        async def is_drained() -> bool:
            return (await world.depth(queue))[:3] == (0, 0, 0)

        await until(is_drained)

    try:
        for cycle in range(cycles):
            killed = consumers[cycle % 2]
            assert killed.stdout.readline() == "ready\n"
            time.sleep(random.uniform(0, 0.3))  # the moment of death, not a synchronisation
            lines += killed.kill().splitlines()
            consumers[cycle % 2] = start_worker(CONSUMER, url, queue_id)
        with_database(url, drain)
    finally:
        for consumer in consumers:
            lines += consumer.kill().splitlines()
    leased = Counter(line.split()[1] for line in lines if line.startswith("leased"))
    acknowledged = Counter(line.split()[1] for line in lines if line.startswith("acknowledged"))
    # A lease may be written down after the line that tells of it was lost with its consumer.
    assert set(acknowledged) <= set(sent)
    assert len(sent) - len(set(leased)) <= 3 * cycles
    assert max(acknowledged.values()) == 1
