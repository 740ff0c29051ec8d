"""The turns of the schedule against a model: several workers, late and dead ones among them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from cloudcore.clock import uuid7
from cloudcore.jobs import schedule_rows
from cloudcore.jobs.tables import schedules
from tests.jobs import START
from tests.property.machines import DatabaseMachine, run_machine
from tests.schedules import all_turns

NAMES: Final = ("a", "b", "c")
LEASE: Final = 60_000_000


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


class Turns(DatabaseMachine):
    """Workers use every lease they ever had, however late."""

    def __init__(self, url: str) -> None:
        super().__init__(url, schedules)
        self.now = START
        self.model: dict[str, Expected] = {}
        self.held: list[Held] = []

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
            token,
            until,
            self.now,
            "worker",
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
            turn = (*held, due_at, None if code is None else (code, "message"))
            assert self.write(schedule_rows.end, *turn, self.now) == (expected is not None)
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
        found = self.read(all_turns)
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
        listed = self.read(schedule_rows.due_times, ["a", "c"])
        assert listed == {n: row.due_at for n, row in self.model.items() if n in ("a", "c")}


def test_the_schedule_is_its_model(database_url: str) -> None:
    run_machine(partial(Turns, database_url), 7, 30)
