"""The turns of the schedule against a model: several workers, late and dead ones among them.

``SOAK=20`` in the environment makes the machine run twenty times as many examples.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import delete

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.jobs import schedule_rows
from cloudcore.jobs.schedule_rows import TurnEnd
from cloudcore.jobs.tables import schedules
from tests.jobs import START
from tests.schedules import Turn, all_turns
from tests.soak import times

NAMES: Final = ("a", "b", "c")
LEASE: Final = 60_000_000
_CLEAR: Final = Statement(delete(schedules))


class Held(NamedTuple):
    """A lease that a worker once had, and may still believe in."""

    name: str
    token: str


@dataclass
class Expected:
    """What the model knows of a chore."""

    due_at: int
    token: str | None = None
    ended_at: int | None = None
    fault: tuple[str, int] | None = None


def clear(tx: Connection) -> None:
    tx.execute(_CLEAR)


class Turns(RuleBasedStateMachine):
    """Workers use every lease they ever had, however late."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.database = self.loop.run_until_complete(self.opened())
        self.write(clear)
        self.now = START
        self.model: dict[str, Expected] = {}
        self.held: list[Held] = []

    async def opened(self) -> Any:  # noqa: ANN401 - either database
        return open_database(self.url)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.database.close())
        self.loop.close()

    def write(self, change: Any, *args: Any) -> Any:  # noqa: ANN401
        return self.loop.run_until_complete(self.database.write(change, *args))

    @rule(names=st.sets(st.sampled_from(NAMES)), seconds=st.sampled_from([0, 30]))
    def insert(self, names: set[str], seconds: int) -> None:
        due_at = dict.fromkeys(names, self.now + seconds * 1_000_000)
        self.write(schedule_rows.insert_missing, due_at)
        for name in names:
            self.model.setdefault(name, Expected(due_at[name]))

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1))
    def lease(self, names: set[str]) -> None:
        token = uuid7()
        until = self.now + LEASE
        leased = self.write(
            schedule_rows.lease,
            sorted(names),
            schedule_rows.TurnTerms(token, until, "worker"),
            self.now,
        )
        due = {name for name in names & self.model.keys() if self.model[name].due_at <= self.now}
        assert set(leased) == due
        for name in leased:
            self.model[name].due_at, self.model[name].token = until, token
            self.held.append(Held(name, token))

    def pick(self, number: int) -> tuple[Held, Expected | None] | None:
        """Return a lease of old, and the chore if it is still under it."""
        if not self.held:
            return None
        held = self.held[number % len(self.held)]
        expected = self.model[held.name]
        return held, expected if expected.token == held.token else None

    @rule(number=st.integers(0, 20))
    def renew(self, number: int) -> None:
        if picked := self.pick(number):
            held, expected = picked
            until = self.now + LEASE
            assert self.write(schedule_rows.renew, *held, until) == (expected is not None)
            if expected:
                expected.due_at = until

    @rule(number=st.integers(0, 20))
    def release(self, number: int) -> None:
        if picked := self.pick(number):
            held, expected = picked
            self.write(schedule_rows.release, *held, self.now)
            if expected:
                expected.due_at, expected.token = self.now, None

    @rule(number=st.integers(0, 20), code=st.sampled_from([None, None, "X", "Y"]))
    def end(self, number: int, code: str | None) -> None:
        if picked := self.pick(number):
            held, expected = picked
            due_at = self.now + 30_000_000
            turn = TurnEnd(*held, due_at, None if code is None else (code, "message"))
            assert self.write(schedule_rows.end, turn, self.now) == (expected is not None)
            if expected:
                known = expected.fault is not None and expected.fault[0] == code
                occurrences = expected.fault[1] + 1 if known and expected.fault else 1
                expected.fault = None if code is None else (code, occurrences)
                expected.due_at, expected.token, expected.ended_at = due_at, None, self.now

    @rule(name=st.sampled_from(NAMES), is_right=st.booleans())
    def hasten(self, name: str, is_right: bool) -> None:
        expected = self.model.get(name)
        seen = expected.due_at + (not is_right) if expected else 0
        hastened = self.write(schedule_rows.hasten, name, seen, self.now)
        assert hastened == (expected is not None and is_right)
        if expected and is_right:
            expected.due_at, expected.token = self.now, None

    @rule(seconds=st.sampled_from([1, 29, 60, 600]))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds * 1_000_000

    @invariant()
    def rows_are_the_model(self) -> None:
        found: dict[str, Turn] = self.loop.run_until_complete(self.database.read(all_turns))
        rows = {
            name: Expected(
                row.due_at,
                row.lease_token,
                row.ended_at,
                (row.fault.code, row.fault.occurrences) if row.fault else None,
            )
            for name, row in found.items()
        }
        assert rows == self.model
        listed = self.loop.run_until_complete(
            self.database.read(schedule_rows.list_due, ["a", "c"])
        )
        assert listed == {n: row.due_at for n, row in self.model.items() if n in ("a", "c")}


def test_the_schedule_is_its_model(database_url: str) -> None:
    class OnThisDatabase(Turns):
        url = database_url

    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=times(20),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
