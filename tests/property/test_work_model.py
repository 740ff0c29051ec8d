"""The work of a resource under changes, deletion, failures, and workers that die or come late."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.errors import Conflict, NotFound
from cloudcore.jobs import queue
from cloudcore.jobs.kinds import Done, Next, StepFailed
from cloudcore.jobs.queue import Job, LeaseLost, LeaseTerms
from cloudcore.jobs.worker import _commit
from cloudcore.resources.resource import DELETING
from tests.beacons import (
    BEACONS,
    BUILDING,
    LONGEST_RETRY,
    WORK,
    Beacon,
    BeaconNeeds,
    add_owner,
    find,
    make_beacons,
    new_beacon,
)
from tests.databases import with_database
from tests.jobs import Clock, run_due
from tests.property.machines import DatabaseMachine, run_machine

LEASE: Final = 60


class Shore(DatabaseMachine):
    """One beacon. A worker does its step at once, and stores late, or never, what that came to."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.folder = TemporaryDirectory()
        self.clock = Clock()
        self.needs = BeaconNeeds(self.database, Path(self.folder.name), self.clock, self.come_to)
        self.kind = WORK.job_kind(self.needs)
        self.broken: set[str] = set()
        self.held: list[tuple[Job, Next | Done]] = []
        self.is_deleted = False

    async def come_to(self, place: str) -> None:
        if place in self.broken:
            raise StepFailed("BROKEN", f"{place} is broken")

    @initialize()
    def make(self) -> None:
        self.made: Beacon = self.wait(new_beacon(self.database, self.clock()))

    @rule()
    def work(self) -> None:
        """Let a worker take the job, if it is due, and do a step."""
        now = self.clock()
        terms = LeaseTerms(uuid7(), now + LEASE * MICROSECONDS, 1, {WORK.name})
        for job in self.write(queue.lease, terms, now):
            self.held.append((job, self.wait(self.kind.step(job))))

    @rule(steps=st.integers(1, 3))
    def work_in_time(self, steps: int) -> None:
        """Let a worker do some steps, and store each."""
        for _ in range(steps):
            self.work()
            self.store(-1)

    @rule(number=st.integers(0, 3))
    def store(self, number: int) -> None:
        """Let a worker store what it came to, unless its lease is lost."""
        if self.held:
            job, outcome = self.held.pop(number % len(self.held))
            now = self.clock()
            store = partial(_commit, job, outcome, now, now)
            try:
                self.write(store, keep=False)
            except LeaseLost:
                assert now >= (job.due_at or 0)

    @rule()
    def die(self) -> None:
        """Let all workers die."""
        self.held.clear()

    @rule(seconds=st.sampled_from([1, 10, LEASE]))
    def pass_seconds(self, seconds: int) -> None:
        self.clock.pass_seconds(seconds)

    @rule(height=st.integers(1, 100))
    def change(self, height: int) -> None:
        change = {"height": height}
        try:
            found = self.write(BEACONS.update, self.made, change, self.clock())
        except (Conflict, NotFound):
            assert self.is_deleted
        else:  # what is being deleted may be asked for what it has already
            assert (found.status == DELETING) == self.is_deleted

    @rule()
    def delete(self) -> None:
        try:
            self.write(BEACONS.remove, self.made, self.clock())
        except NotFound:
            assert self.is_deleted
        self.is_deleted = True

    @rule(place=st.sampled_from(["tower", "lamp done", "tear_down"]))
    def break_or_mend(self, place: str) -> None:
        self.broken ^= {place}

    @invariant()
    def what_is_stored_is_so(self) -> None:
        if not hasattr(self, "made"):
            return
        found = self.read(find, self.made.id)
        if found is None:
            assert self.is_deleted
            assert self.needs.pieces() == []
            return
        assert (found.status == "deleting") == self.is_deleted
        assert found.built <= found.generation
        if found.status == "lit":
            assert found.built == found.generation
            assert self.needs.pieces() == [f"{each} {found.height}" for each in sorted(BUILDING)]

    def teardown(self) -> None:
        """Let all that is wanted be done, with no worker dead and nothing broken."""
        self.broken.clear()
        if hasattr(self, "made"):
            for _ in range(2):  # a lease that was held, and a pause
                self.clock.pass_seconds(max(LEASE, LONGEST_RETRY))
                self.wait(run_due(self.database, [self.kind], self.clock))
            self.what_is_stored_is_so()
            found = self.read(find, self.made.id)
            assert (found and found.status) == (None if self.is_deleted else "lit")
            assert found is None or found.faults == ()
        super().teardown()
        self.folder.cleanup()


def test_what_is_wanted_last_is_what_comes(database_url: str) -> None:
    make_beacons(database_url)
    with_database(database_url, add_owner)

    run_machine(partial(Shore, database_url), 9, 40)
