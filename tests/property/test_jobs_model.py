"""The queue against a model of it: several workers, late and dead ones among them.

One at a time: races are in `tests/integration/test_jobs_leases.py`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.jobs import queue
from cloudcore.jobs.faults import Fault
from cloudcore.jobs.queue import Job, LeaseLost, LeaseTerms, NewJob
from cloudcore.jobs.tables import jobs
from tests.jobs import START, add_effect, all_jobs, effects, find_job, list_effects, make_tables
from tests.property.machines import DatabaseMachine, run_machine

KINDS: Final = ("a", "b")
LEASE: Final = 60
MOST_ATTEMPTS: Final = 4


@dataclass
class Expected:
    """What the model knows of a job."""

    new: NewJob
    created_at: int
    due_at: int
    state: str = "queued"
    cursor: int = 0
    attempts: int = 0
    token: str | None = None
    wake_at: int | None = None
    fault: Fault | None = None
    finished_at: int | None = None
    effects: list[int] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.finished_at is not None

    def finish(self, state: str, now: int) -> None:
        self.state, self.token, self.finished_at = state, None, now

    def release(self, due_at: int) -> None:
        """Make it due at a moment, or at that for which it was woken during its lease."""
        wake_at, self.wake_at = self.wake_at, None
        self.due_at = due_at if wake_at is None else min(due_at, wake_at)
        self.token = None

    def fail(self, code: str, now: int) -> None:
        """Count a fault with those of its code that came right before it."""
        before = self.fault if self.fault is not None and self.fault.code == code else None
        first_at, times = (now, 1) if before is None else (before.first_at, before.occurrences + 1)
        self.fault = Fault(code, f"{code} at {now}", first_at, now, times)


class Queue(DatabaseMachine):
    """Workers hold what they were once given, however old: so every lease is used late, too."""

    def __init__(self, url: str) -> None:
        super().__init__(url, jobs, effects)
        self.now = START
        self.model: dict[str, Expected] = {}
        self.held: list[Job] = []

    def due(self, kinds: set[str]) -> list[Expected]:
        return [
            job
            for job in self.model.values()
            if not job.is_finished and job.new.kind in kinds and job.due_at <= self.now
        ]

    @rule(
        kind=st.sampled_from(KINDS),
        key=st.sampled_from([None, "k1", "k2"]),
        delay=st.sampled_from([0, 0, 1.5, 30]),
        hastens=st.booleans(),
        is_undone=st.booleans(),
    )
    def enqueue(
        self, kind: str, key: str | None, delay: float, hastens: bool, is_undone: bool
    ) -> None:
        """A job is there if and only if its change is; a start joins the unfinished of its key."""
        new = NewJob(kind, [delay], None, "crn:x", key, delay, hastens)

        def change(tx: Connection) -> str:
            identity = queue.enqueue(tx, new, self.now)
            if is_undone:
                raise InterruptedError
            return identity

        joined = [
            identity
            for identity, job in self.model.items()
            if key is not None and job.new[:1] + job.new[4:5] == (kind, key) and not job.is_finished
        ]
        try:
            identity = self.write(change)
        except InterruptedError:
            return
        due_at = self.now + int(delay * 1_000_000)
        if not joined:
            assert identity not in self.model
            self.model[identity] = Expected(new, self.now, due_at)
            return
        assert [identity] == joined
        job = self.model[identity]
        if hastens and job.token is None:
            job.due_at = min(job.due_at, due_at)
        elif hastens:
            job.wake_at = due_at if job.wake_at is None else min(job.wake_at, due_at)

    @rule(kinds=st.sets(st.sampled_from(KINDS), min_size=1), limit=st.integers(1, 3))
    def lease(self, kinds: set[str], limit: int) -> None:
        due = self.due(kinds)
        times = sorted(job.due_at for job in due)[:limit]
        token = uuid7()
        terms = LeaseTerms(token, self.now + LEASE * 1_000_000, limit, kinds)
        leased = self.write(queue.lease, terms, self.now)
        # Those due longest; of several due at one moment, any.
        assert sorted(self.model[one.id].due_at for one in leased) == times
        for one in leased:
            assert self.row(one.id) == one
            job = self.model[one.id]
            assert job in due
            job.state, job.attempts, job.token = "running", job.attempts + 1, token
            job.due_at, job.wake_at = terms.until, None
        self.held += leased

    def row(self, identity: str) -> Job | None:
        return self.read(find_job, identity)

    def use(self, number: int, change: Any) -> tuple[Job, Expected] | None:  # noqa: ANN401
        """Let a holder make its change; return the job if it counted, as it should or not."""
        job = self.held[number % len(self.held)]
        expected = self.model.get(job.id)
        try:
            result = self.write(partial(change, job))
        except LeaseLost:
            result = False
        counts = expected is not None and expected.token == job.lease_token
        assert (result is not False) == counts
        if isinstance(result, Job):
            assert self.row(job.id) == result
        return (job, expected) if expected is not None and counts else None

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 20), keep=st.booleans(), delay=st.sampled_from([0, 30]))
    def advance(self, number: int, keep: bool, delay: int) -> None:
        due_at = self.now + (LEASE if keep else delay) * 1_000_000

        def change(job: Job, tx: Connection) -> Job:
            step = job.cursor or 0
            add_effect(job.id, step, tx)
            if not keep:
                return queue.pause(tx, job, step + 1, due_at, self.now)
            moved = queue.advance(tx, job, step + 1, due_at, self.now)
            queue.begin_step(tx, moved)
            return moved

        used = self.use(number, change)
        if used:
            job, expected = used
            step = job.cursor or 0
            expected.effects.append(step)
            expected.cursor, expected.attempts = step + 1, int(keep)
            expected.fault = None
            if keep:
                expected.due_at, expected.wake_at = due_at, None
                self.held = [
                    one._replace(cursor=step + 1) if one is job else one for one in self.held
                ]
            else:
                expected.release(due_at)

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 20))
    def succeed(self, number: int) -> None:
        def change(job: Job, tx: Connection) -> None:
            add_effect(job.id, 1000, tx)
            queue.succeed(tx, job, self.now)

        used = self.use(number, change)
        if used:
            used[1].effects.append(1000)
            used[1].fault = None
            used[1].finish("succeeded", self.now)

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 20), code=st.sampled_from("XY"), pause=st.sampled_from([0, 5]))
    def fail(self, number: int, code: str, pause: int) -> None:
        def retry_seconds(attempts: int) -> float | None:
            return None if attempts >= MOST_ATTEMPTS else pause

        def change(job: Job, tx: Connection) -> Job:
            message = f"{code} at {self.now}"
            return queue.record_failure(tx, job, code, message, retry_seconds, self.now)

        used = self.use(number, change)
        if used:
            expected = used[1]
            expected.fail(code, self.now)
            if expected.attempts >= MOST_ATTEMPTS:
                expected.finish("failed", self.now)
            else:
                expected.release(self.now + pause * 1_000_000)

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 20))
    def renew(self, number: int) -> None:
        end = self.now + LEASE * 1_000_000
        used = self.use(number, lambda job, tx: queue.renew(tx, job, end))
        if used:
            used[1].due_at = end

    @rule(seconds=st.sampled_from([1, 29, 60, 600]))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds * 1_000_000

    @rule(microseconds=st.sampled_from([0, queue.KEPT_SECONDS * 1_000_000 - 1, 1]))
    def forget(self, microseconds: int) -> None:
        self.now += microseconds
        before = self.now - queue.KEPT_SECONDS * 1_000_000
        gone = [
            identity
            for identity, job in self.model.items()
            if job.finished_at is not None and job.finished_at <= before
        ]
        assert self.write(queue.forget_finished, self.now) == len(gone)
        for identity in gone:
            del self.model[identity]

    @invariant()
    def rows_are_the_model(self) -> None:
        found = {job.id: job for job in self.read(all_jobs)}
        assert found.keys() == self.model.keys()
        for identity, job in found.items():
            expected = self.model[identity]
            new = expected.new
            assert (job.kind, job.arguments, job.resource) == (new.kind, new.arguments, "crn:x")
            assert job.created_at == expected.created_at
            assert (job.state, job.cursor or 0, job.lease_token, job.fault, job.finished_at) == (
                *(expected.state, expected.cursor, expected.token),
                *(expected.fault, expected.finished_at),
            )
            assert job.due_at == (None if expected.is_finished else expected.due_at)
            assert expected.is_finished or job.attempts == expected.attempts

    @invariant()
    def effects_are_those_of_the_steps(self) -> None:
        stored = self.read(list_effects)
        known = [(one, step) for one, job in self.model.items() for step in job.effects]
        assert sorted(row for row in stored if row[0] in self.model) == sorted(known)
        assert len(stored) == len(set(stored))

    @invariant()
    def the_first_due_is_found(self) -> None:
        for kinds in ({"a"}, {"b"}, {"a", "b"}):
            waiting = [
                job.due_at
                for job in self.model.values()
                if job.new.kind in kinds and not job.is_finished
            ]
            found = self.read(queue.first_due, kinds)
            assert found == min(waiting, default=None)


WALKS: Final[dict[str, list[tuple[Any, ...]]]] = {
    "a job is there if and only if its change is": [
        ("enqueue", "a", None, 1.5, False, True),
        ("enqueue", "a", None, 1.5, False, False),
    ],
    "a start joins the unfinished job of its key": [
        ("enqueue", "a", "k1", 0, False, False),
        ("enqueue", "a", "k1", 30, False, False),
        ("lease", {"a"}, 1),
        ("enqueue", "a", "k1", 0, True, False),
        ("enqueue", "a", "k2", 30, False, False),
        ("enqueue", "a", "k2", 0, True, False),
        ("enqueue", "b", "k1", 0, False, False),
        ("succeed", 0),
        ("enqueue", "a", "k1", 0, False, False),
    ],
    "the job due longest is leased first": [
        *(("enqueue", "a", None, delay, False, False) for delay in (3, 1, 2, 9)),
        ("pass_time", 5),
        *[("lease", {"a"}, 1)] * 4,
    ],
    "who lost the lease changes nothing": [
        ("enqueue", "a", None, 0, False, False),
        ("lease", {"a"}, 1),
        ("pass_time", LEASE - 1),
        ("lease", {"a"}, 1),
        ("renew", 0),
        ("pass_time", LEASE),
        ("lease", {"a"}, 1),
        ("advance", 0, True, 0),
        ("succeed", 0),
        ("fail", 0, "X", 0),
        ("renew", 0),
        ("succeed", 1),
    ],
    "what is woken under a lease is due when the step ends": [
        ("enqueue", "a", "k1", 0, False, False),
        ("lease", {"a"}, 1),
        ("enqueue", "a", "k1", 30, True, False),
        ("enqueue", "a", "k1", 1.5, True, False),
        ("pass_time", 1),
        ("advance", 0, False, 30),
        ("pass_time", 1),
        ("lease", {"a"}, 1),
        ("advance", 1, False, 30),
        ("enqueue", "a", "k1", 0, True, False),
        ("lease", {"a"}, 1),
        ("enqueue", "a", "k1", 0, True, False),
        ("fail", 2, "X", 5),
        ("lease", {"a"}, 1),
    ],
    "a wake is over when a step begins after it": [
        ("enqueue", "a", "k1", 0, False, False),
        ("lease", {"a"}, 1),
        ("enqueue", "a", "k1", 0, True, False),
        ("advance", 0, True, 0),
        ("advance", 0, False, 30),
        ("enqueue", "a", "k1", 0, True, False),
        ("lease", {"a"}, 1),
        ("enqueue", "a", "k1", 0, True, False),
        ("pass_time", LEASE),
        ("lease", {"a"}, 1),
        ("advance", 2, False, 30),
    ],
    "faults add up by code, and a step that ends clears them": [
        ("enqueue", "a", None, 0, False, False),
        *(
            step
            for number, code in enumerate("XXYX")
            for step in (("lease", {"a"}, 1), ("pass_time", 1), ("fail", number, code, 0))
        ),
        ("enqueue", "b", None, 0, False, False),
        ("lease", {"b"}, 1),
        ("fail", 4, "X", 0),
        ("lease", {"b"}, 1),
        ("advance", 5, False, 0),
    ],
    "only jobs finished long ago are forgotten": [
        ("enqueue", "a", None, 0, False, False),
        ("enqueue", "b", None, 0, False, False),
        ("lease", {"a"}, 1),
        ("succeed", 0),
        ("forget", queue.KEPT_SECONDS * 1_000_000 - 1),
        ("forget", 1),
    ],
}


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_the_queue_is_its_model_on_a_known_walk(
    database_url: str, walk: list[tuple[Any, ...]]
) -> None:
    make_tables(database_url)
    machine = Queue(database_url)
    with ExitStack() as stack:
        stack.callback(machine.teardown)
        for name, *arguments in walk:
            getattr(machine, name)(*arguments)
            machine.rows_are_the_model()
            machine.effects_are_those_of_the_steps()
            machine.the_first_due_is_found()


def test_the_queue_is_its_model(database_url: str) -> None:
    make_tables(database_url)

    run_machine(partial(Queue, database_url), 9, 40)
