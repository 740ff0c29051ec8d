"""Workers of the schedule killed at random moments: the chore goes on, and never twice at once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Database
from tests.databases import with_database
from tests.fault.schedule_worker import CHORE, LEASE_SECONDS
from tests.jobs import until
from tests.loaded import Worker, start_worker
from tests.schedules import Turn, all_turns


def start(url: str, file: Path, mode: str = "working") -> Worker:
    """Start a worker of the schedule."""
    return start_worker("tests.fault.schedule_worker", url, str(file), mode)


@contextmanager
def killed_at_the_end(workers: list[Worker]) -> Iterator[None]:
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()


@pytest.mark.parametrize(
    ("kind", "cycles"),
    [("sqlite", 4), pytest.param("postgresql", 2, marks=pytest.mark.postgresql)],
)
def test_the_chore_goes_on_and_never_twice_at_once(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, cycles: int
) -> None:
    """Two workers keep one schedule; one after the other is killed and replaced."""
    url: str = request.getfixturevalue(f"{kind}_database")
    file = tmp_path / "held"
    workers = [start(url, file), start(url, file)]
    told: list[str] = []
    with killed_at_the_end(workers):
        for cycle in range(cycles):
            killed = workers[cycle % 2]
            assert killed.read() == "ready"
            time.sleep(random.uniform(0, 0.2))  # the moment of death, not a synchronisation
            told += killed.kill().splitlines()
            workers[cycle % 2] = start(url, file)
            with_database(url, goes_on)
        told += [
            line for worker in workers for line in worker.kill().splitlines() if line != "ready"
        ]
    assert set(told) == {"turn"}


async def goes_on(database: Database) -> None:
    """Wait until a turn has ended that began later."""
    before = await database.read(all_turns)

    async def has_ended() -> bool:
        turn = (await database.read(all_turns)).get(CHORE)
        known = before.get(CHORE)
        return turn is not None and turn.ended_at not in (None, known and known.ended_at)

    await until(has_ended)


async def turn_of(database: Database) -> Turn:
    return (await database.read(all_turns))[CHORE]


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]
)
def test_a_turn_that_its_worker_never_ends_is_anothers_after_its_death(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """As long as it lives its lease is renewed, and the other takes no turn."""
    url: str = request.getfixturevalue(f"{kind}_database")
    stuck = start(url, tmp_path / "held", "stuck")
    workers = [stuck]
    with killed_at_the_end(workers):
        assert [stuck.read(), stuck.read()] == ["ready", "turn"]
        other = start(url, tmp_path / "held")
        workers.append(other)
        assert other.read() == "ready"
        held = with_database(url, turn_of)
        two_leases_later = held.due_at + 2 * LEASE_SECONDS * MICROSECONDS

        async def until_renewed(database: Database) -> None:
            async def renewed() -> bool:
                return (await turn_of(database)).due_at > two_leases_later

            await until(renewed)

        with_database(url, until_renewed)
        assert with_database(url, turn_of).lease_token == held.lease_token
        assert stuck.kill() == ""
        assert other.read() == "turn"  # its first
        assert other.read() == "turn"
