"""The queue against a model of it: several workers, late and dead ones among them.

``SOAK=20`` in the environment makes the machine run twenty times as many examples.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import delete

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.jobs import queue
from cloudcore.jobs.queue import Job, LeaseLost, LeaseTerms, NewJob
from cloudcore.jobs.tables import jobs
from tests.jobs import START, add_effect, all_jobs, effects, list_effects, make_tables
from tests.soak import times

KINDS: Final = ("a", "b")
LEASE: Final = 60
MOST_ATTEMPTS: Final = 3
_CLEAR: Final = [Statement(delete(table)) for table in (jobs, effects)]


@dataclass
class Expected:
    """What the model knows of a job."""

    kind: str
    key: str | None
    due_at: int
    state: str = "queued"
    cursor: int = 0
    attempts: int = 0
    token: str | None = None
    fault: tuple[str, int] | None = None
    finished_at: int | None = None
    effects: list[int] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.finished_at is not None

    def finish(self, state: str, now: int) -> None:
        self.state, self.token, self.finished_at = state, None, now

    def fail(self, code: str) -> None:
        known = self.fault is not None and self.fault[0] == code
        self.fault = (code, self.fault[1] + 1 if known and self.fault else 1)


def clear(tx: Connection) -> None:
    for statement in _CLEAR:
        tx.execute(statement)


class Queue(RuleBasedStateMachine):
    """Workers hold what they were once given, however old: so every lease is used late, too."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.database = self.loop.run_until_complete(self.opened())
        self.write(clear)
        self.now = START
        self.model: dict[str, Expected] = {}
        self.held: list[Job] = []

    async def opened(self) -> Any:  # noqa: ANN401 - either database
        return open_database(self.url)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.database.close())
        self.loop.close()

    def write(self, change: Any, *args: Any) -> Any:  # noqa: ANN401
        return self.loop.run_until_complete(self.database.write(change, *args))

    def due(self, kinds: set[str]) -> list[Expected]:
        return [
            job
            for job in self.model.values()
            if not job.is_finished and job.kind in kinds and job.due_at <= self.now
        ]

    @rule(
        kind=st.sampled_from(KINDS),
        key=st.sampled_from([None, "k1", "k2"]),
        delay=st.sampled_from([0, 0, 30]),
    )
    def enqueue(self, kind: str, key: str | None, delay: int) -> None:
        joined = [
            identity
            for identity, job in self.model.items()
            if key is not None and (job.kind, job.key) == (kind, key) and not job.is_finished
        ]
        new = NewJob(kind, dedup_key=key, delay_seconds=delay)
        identity = self.write(queue.enqueue, new, self.now)
        if joined:
            assert [identity] == joined
        else:
            assert identity not in self.model
            self.model[identity] = Expected(kind, key, self.now + delay * 1_000_000)

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
            job = self.model[one.id]
            assert job in due
            job.state, job.attempts, job.token = "running", job.attempts + 1, token
            job.due_at = terms.until
        self.held += leased

    async def read_all(self) -> list[Job]:
        found: list[Job] = await self.database.read(all_jobs)
        return found

    def use(self, number: int, change: Any) -> tuple[Job, Expected] | None:  # noqa: ANN401
        """Let a holder make its change; return the job if it counted, as it should or not."""
        if not self.held:
            return None
        job = self.held[number % len(self.held)]
        expected = self.model.get(job.id)
        try:
            result = self.write(partial(change, job))
        except LeaseLost:
            result = False
        counts = expected is not None and expected.token == job.lease_token
        assert (result is not False) == counts
        return (job, expected) if expected is not None and counts else None

    @rule(number=st.integers(0, 20), keep=st.booleans(), delay=st.sampled_from([0, 30]))
    def advance(self, number: int, keep: bool, delay: int) -> None:
        due_at = self.now + (LEASE if keep else delay) * 1_000_000

        def change(job: Job, tx: Connection) -> None:
            step = job.cursor or 0
            add_effect(job.id, step, tx)
            queue.advance(tx, job, step + 1, due_at, self.now, keep=keep)

        used = self.use(number, change)
        if used:
            job, expected = used
            step = job.cursor or 0
            expected.effects.append(step)
            expected.cursor, expected.attempts = step + 1, int(keep)
            expected.due_at, expected.fault = due_at, None
            if keep:
                self.held = [
                    one._replace(cursor=step + 1) if one is job else one for one in self.held
                ]
            else:
                expected.token = None

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

    @rule(number=st.integers(0, 20), code=st.sampled_from("XY"), pause=st.sampled_from([0, 5]))
    def fail(self, number: int, code: str, pause: int) -> None:
        def retry_seconds(attempts: int) -> float | None:
            return None if attempts >= MOST_ATTEMPTS else pause

        def change(job: Job, tx: Connection) -> None:
            queue.record_failure(tx, job, code, "message", retry_seconds, self.now)

        used = self.use(number, change)
        if used:
            expected = used[1]
            expected.fail(code)
            if expected.attempts >= MOST_ATTEMPTS:
                expected.finish("failed", self.now)
            else:
                expected.token, expected.due_at = None, self.now + pause * 1_000_000

    @rule(number=st.integers(0, 20))
    def renew(self, number: int) -> None:
        end = self.now + LEASE * 1_000_000
        used = self.use(number, lambda job, tx: queue.renew(tx, job, end))
        if used:
            used[1].due_at = end

    @rule(seconds=st.sampled_from([1, 29, 60, 600]))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds * 1_000_000

    @rule(seconds=st.sampled_from([0, queue.KEPT_SECONDS]))
    def forget(self, seconds: int) -> None:
        self.now += seconds * 1_000_000
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
        found = {job.id: job for job in self.loop.run_until_complete(self.read_all())}
        assert found.keys() == self.model.keys()
        for identity, job in found.items():
            expected = self.model[identity]
            fault = (job.fault.code, job.fault.occurrences) if job.fault else None
            assert (job.state, job.cursor or 0, job.lease_token, fault, job.finished_at) == (
                *(expected.state, expected.cursor, expected.token),
                *(expected.fault, expected.finished_at),
            )
            assert job.due_at == (None if expected.is_finished else expected.due_at)
            assert expected.is_finished or job.attempts == expected.attempts

    @invariant()
    def effects_are_those_of_the_steps(self) -> None:
        stored = self.loop.run_until_complete(self.database.read(list_effects))
        known = [(one, step) for one, job in self.model.items() for step in job.effects]
        assert sorted(row for row in stored if row[0] in self.model) == sorted(known)
        assert len(stored) == len(set(stored))

    @invariant()
    def the_first_due_is_found(self) -> None:
        for kinds in ({"a"}, {"b"}, {"a", "b"}):
            waiting = [
                job.due_at
                for job in self.model.values()
                if job.kind in kinds and not job.is_finished
            ]
            found = self.loop.run_until_complete(self.database.read(queue.first_due, kinds))
            assert found == min(waiting, default=None)


def test_the_queue_is_its_model(database_url: str) -> None:
    make_tables(database_url)

    class OnThisDatabase(Queue):
        url = database_url

    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=times(25),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
