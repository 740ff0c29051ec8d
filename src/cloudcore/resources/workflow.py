"""Carry out the changes of a resource in steps: a job runs named steps one by one.

A request stores what the owner wants, and steps bring it about. Each step gets the record, does one
thing outside the database, and returns a result, which is stored in one transaction with the name
of the next step. So a process that dies between two steps loses nothing, and a step in which it
dies is repeated: each step is idempotent. One job at a time works on a record.

The newest request wins: the result of a step is always stored, but if a newer request exists, its
first step is next. A record that is being deleted keeps that status, and is removed with the last
step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import structs

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict, Unavailable
from cloudcore.events import Events
from cloudcore.jobs.backoff import backoff_seconds
from cloudcore.jobs.faults import Fault, add_fault
from cloudcore.jobs.kinds import OUTBOUND_SLOTS, Done, JobKind, Next
from cloudcore.jobs.queue import Job, NewJob, enqueue
from cloudcore.jobs.worker import described
from cloudcore.resources.resource import DELETING, Worked
from cloudcore.resources.rows import Rows

_OWN_CODES: Final = ("INTERNAL_ERROR", "SERVICE_UNAVAILABLE", "TIMEOUT")


class WorkNeeds(Protocol):
    """The dependencies of every step."""

    @property
    def database(self) -> Database:
        """Return the database with the records."""

    @property
    def clock(self) -> Clock:
        """Return the clock."""


R = TypeVar("R", bound=Worked)
N = TypeVar("N", bound=WorkNeeds)


class Goal(NamedTuple):
    """What is to be done with a record: the first step, and the number of the request."""

    step: str
    generation: int = 0
    """Number of the request. Goals with different numbers differ, even if the step is the same."""


class StepAttempt(NamedTuple):
    """An attempt at a step, stored as the job's cursor."""

    goal: Goal
    step: str
    """Name of the step; empty after the last one."""
    tries: int
    """Number of earlier tries of the step."""
    since: int
    """Time of the first try, in microseconds since the epoch."""


class Problem(NamedTuple):
    """A problem that a step found, which becomes a fault of the record."""

    code: str
    message: str
    subject: str = ""
    """The part of the record that has the fault; empty for the whole."""


@dataclass(frozen=True, kw_only=True)
class StepDone(Generic[R]):
    """The result of a step that has succeeded."""

    change: Callable[[R, int], R] = lambda found, _now: found
    """Returns the record with the step's changes; a pure function. It gets the record, as it is in
    the transaction, and the moment."""
    also: Callable[[Connection, R, R], None] = lambda _tx, _before, _after: None
    """Stores or emits anything else; gets the record before and after the change."""
    faults: Sequence[Problem] = ()
    """Problems that become faults. Without any, the earlier faults end."""
    keeps_faults: bool = False
    """True if the earlier faults remain even without new ones, except the `_OWN_CODES` of failed
    attempts and what `change` removes."""
    next: str | None = None
    """The next step; None after the last one."""
    seconds: float = 0
    """Pause before the next step."""


@dataclass(frozen=True, kw_only=True)
class StepRetry(Generic[R]):
    """The result of a step that is to be retried. The earlier faults remain."""

    change: Callable[[R, int], R] = lambda found, _now: found
    also: Callable[[Connection, R, R], None] = lambda _tx, _before, _after: None
    faults: Sequence[Problem] = ()
    seconds: float | None = None
    """Pause before the retry, which then does not count as a try. If None, the pause is that of the
    `Step`, doubled by each try."""


@dataclass(frozen=True)
class Step(Generic[R, N]):
    """A step: its function and its pauses.

    An exception becomes a fault, and the step is retried; only the messages of `StepFailed` and
    `Unavailable` are shown.
    """

    run: Callable[[R, N, StepAttempt], Awaitable[StepDone[R] | StepRetry[R]]]
    first_retry_seconds: float = 5
    longest_retry_seconds: float = 300


class Work(Generic[R, N]):
    """The workflow of a kind of resource."""

    def __init__(
        self,
        rows: Rows[R],
        *,
        goal: Callable[[R, int], Goal | None],
        steps: Mapping[str, Step[R, N]],
        name: str = "",
        slots: int | None = OUTBOUND_SLOTS,
        step_seconds: float = 600,
        node_of: Callable[[R], str] | None = None,
        events: Callable[[N], Events] | None = None,
    ) -> None:
        """Define the workflow for `rows`.

        `goal` is a pure function that returns what to do with a record at a moment, or None.
        `name`, `slots` and `step_seconds` belong to the kind of job. If the work is tied to a
        machine, `node_of` returns the machine's name, and only the processes of that machine do the
        work. `events` returns the `Events` that emit the state events of the resource.
        """
        # If another machine takes the name, only the worker of this machine's jobs is given up.
        assert node_of is None or slots is not None, "its jobs have a worker of their own"
        self.name: Final = name or f"{rows.of.service}.{rows.of.one}.work"
        self._rows: Final = rows
        self._goal = goal
        self._steps: Final = steps
        self._slots: Final = slots
        self._step_seconds: Final = step_seconds
        self._node_of = node_of
        self._events = events
        self._argument: Final = f"{rows.of.one}_id"

    def job_kind(self, needs: N, node: str = "") -> JobKind:
        """Return the kind of job that runs the workflow in a process with these needs.

        `node` is the machine of the process, for work that is tied to machines.
        """
        return JobKind(
            name=self._kind_on(node),
            step=partial(self._step, needs),
            max_attempts=None,
            step_seconds=self._step_seconds + 60,  # more than a step may take
            slots=self._slots,
            node=node,
        )

    def begin(self, tx: Connection, new: R, old: R | None) -> R:
        """Start the workflow of a new or changed record (for `before_save` of `Methods`).

        Raise `Conflict` if the record is being deleted.
        """
        if old is not None and old.status == DELETING:
            raise Conflict(f"the {self._rows.of.noun} is being deleted", reason="being_deleted")
        self.wake(tx, new, new.updated_at)
        return new

    def delete(self, tx: Connection, found: R, now: int) -> None:
        """Start the deletion of a locked record (for `removal` of `Methods`)."""
        if found.status != DELETING:
            self._rows.save(tx, structs.replace(found, status=DELETING, updated_at=now))
            self.wake(tx, found, now)

    def wake(self, tx: Connection, found: R, now: int, *, hastens: bool = True) -> None:
        """Start the workflow of a record now, unless it is already running.

        If a step waits for a retry, `hastens` makes the retry due now.
        """
        new = NewJob(
            self._kind_on("" if self._node_of is None else self._node_of(found)),
            {self._argument: found.id},
            found.account_id,
            self._rows.of.crn_of(found),
            dedup_key=found.id,
            hastens=hastens,
        )
        enqueue(tx, new, now)

    def _kind_on(self, node: str) -> str:
        assert bool(node) is (self._node_of is not None)
        return f"{self.name}@{node}" if node else self.name

    async def _step(self, needs: N, job: Job) -> Next | Done:
        assert job.account_id is not None
        place = job.account_id, job.arguments[self._argument]
        found = await needs.database.read(self._rows.find, *place)
        now = needs.clock()
        goal = None if found is None else self._goal(found, now)
        if found is None or goal is None:
            return Done(partial(self._end, *place, now))
        attempt = self._attempt(job.cursor, StepAttempt(goal, goal.step, 0, now))
        if not attempt.step:  # the last step did not reach the goal: pause before the next round
            pause = self._steps[goal.step].first_retry_seconds
            return Next(attempt._replace(step=goal.step), delay_seconds=pause)
        step = self._steps[attempt.step]
        result = await self._run(job, step, found, needs, attempt)
        now = needs.clock()
        store = partial(self._store, attempt, found, result, needs, now)
        if isinstance(result, StepDone):
            return Next(
                StepAttempt(goal, result.next or "", 0, now), store, delay_seconds=result.seconds
            )
        if result.seconds is not None:
            return Next(attempt, store, delay_seconds=result.seconds)
        pause = backoff_seconds(step.first_retry_seconds, step.longest_retry_seconds, attempt.tries)
        return Next(attempt._replace(tries=attempt.tries + 1), store, delay_seconds=pause)

    def _attempt(self, cursor: object, first: StepAttempt) -> StepAttempt:
        """Return `first`, or the attempt in `cursor` if it has the same goal and a known step.

        A stored attempt with another goal goes on, with the goal of `first`, if it is at the step
        of `first`.
        """
        try:
            attempt = msgspec.convert(cursor, StepAttempt)
        except msgspec.ValidationError:
            return first
        is_ours = attempt.goal == first.goal and attempt.step in ("", *self._steps)
        return attempt._replace(goal=first.goal) if is_ours or attempt.step == first.step else first

    async def _run(
        self, job: Job, step: Step[R, N], found: R, needs: N, attempt: StepAttempt
    ) -> StepDone[R] | StepRetry[R]:
        try:
            async with asyncio.timeout(self._step_seconds):
                return await step.run(found, needs, attempt)
        except Unavailable as error:
            return StepRetry(faults=[Problem("SERVICE_UNAVAILABLE", error.message)])
        except Exception as error:  # noqa: BLE001 - it becomes a fault, and the step is retried
            code, message, _ = described(job, error)
            return StepRetry(faults=[Problem(code, message)])

    def _store(
        self,
        attempt: StepAttempt,
        seen: R,
        result: StepDone[R] | StepRetry[R],
        needs: N,
        now: int,
        tx: Connection,
    ) -> None:
        """Store the result of a step that was called with the record `seen`."""
        # A request that holds the record may wait for the job, which this transaction has locked.
        current = self._rows.lock_values(tx, seen.account_id, seen.id)
        if current is None:
            return
        is_last = isinstance(result, StepDone) and result.next is None and not result.faults
        if is_last and seen.status == DELETING:
            result.also(tx, current, current)
            self._rows.remove(tx, current, now)
            return
        changed = result.change(current, now)
        changed = structs.replace(changed, faults=_faults(changed.faults, result, now))
        if current.status == DELETING:
            changed = structs.replace(changed, status=DELETING)
        if changed != current:
            changed = self._rows.save(tx, structs.replace(changed, updated_at=now))
        result.also(tx, current, changed)
        if self._events is not None:
            self._rows.of.tell_state(self._events(needs), tx, current, changed)
        if self._goal(current, now) != attempt.goal:
            self.wake(tx, changed, now)

    def _end(self, account_id: str, found_id: str, now: int, tx: Connection) -> None:
        """At the end of a job, enqueue a new job if the record has more work by now.

        A record that is being deleted and has no more work is removed.
        """
        found = self._rows.find(tx, account_id, found_id)
        if found is None:
            return
        if self._goal(found, now) is not None:
            self.wake(tx, found, now)
        elif found.status == DELETING:
            self._rows.remove(tx, found, now)


def _faults(
    before: Sequence[Fault], result: StepDone[R] | StepRetry[R], now: int
) -> tuple[Fault, ...]:
    faults = before
    if isinstance(result, StepDone):
        keeps = result.faults or result.keeps_faults
        faults = [each for each in before if keeps and each.code not in _OWN_CODES]
    for each in result.faults:
        faults = add_fault(faults, each.code, each.message, now, subject=each.subject)
    return tuple(faults)
