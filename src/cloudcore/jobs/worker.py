"""The job worker: lease due jobs, run their steps, and renew the leases meanwhile.

Any number of workers, in any processes, share one queue. One worker at a time runs a job. If the
worker dies, its jobs continue from their last cursor as soon as its death is detected, at the
latest when the leases end.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cloudcore.clock import MICROSECONDS, Clock, system_clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unavailable
from cloudcore.jobs import queue
from cloudcore.jobs.background import BackgroundTask, run_under_lease
from cloudcore.jobs.kinds import Committed, Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job, LeaseLost

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPace:
    """The parallelism and time parameters of a worker."""

    slots: int = 4
    """Maximum number of jobs run at once."""
    lease_seconds: float = 60
    """Duration of a lease, after which a dead worker's jobs are due; renewed at a third of it."""
    poll_seconds: float = 2
    """Average delay until jobs enqueued by another process are seen."""
    blocked_seconds: float = 0.05
    """Pause after all due jobs were locked by other workers."""


def divide_by_slots(
    kinds: Iterable[JobKind], pace: JobPace
) -> Iterator[tuple[Sequence[JobKind], JobPace]]:
    """Divide kinds of jobs among workers; yield (kinds, pace) for each worker.

    A kind with its own slots gets its own worker. So slow name servers, queried for certificates,
    do not delay webhooks, and long runs do not delay events.
    """
    others: list[JobKind] = []
    for kind in kinds:
        if kind.slots is None:
            others.append(kind)
        else:
            yield (kind,), replace(pace, slots=kind.slots)
    if others:
        yield others, pace


class JobWorker(BackgroundTask):
    """Runs jobs of its `kinds`; ignores other jobs."""

    name: Final = "job worker"

    def __init__(
        self,
        database: Database,
        kinds: Sequence[JobKind],
        *,
        pace: JobPace | None = None,
        clock: Clock = system_clock,
        new_id: Callable[[], str] = uuid7,
        chance: Callable[[], float] = random.random,
        note_end: Callable[[str], None] = lambda _state: None,
        holder: str | None = None,
    ) -> None:
        """Run jobs of `kinds`; call `note_end` with the state of each job that has ended.

        `holder` is the id of this process, if others can detect its death.
        """
        super().__init__()
        self._database = database
        self._holder = holder
        self._note_end = note_end
        self._kinds = {kind.name: kind for kind in kinds}
        self._pace = pace or JobPace()
        self._clock = clock
        self._new_id = new_id
        self._chance = chance
        self._under_way: set[asyncio.Task[None]] = set()
        self._was_blocked = False
        self._gave_up = False
        database.listen(self.wake)  # after each commit of this process that enqueues a job

    async def run(self) -> None:
        """Run jobs until `stop`; if cancelled, abandon the running jobs, which resume later."""
        try:
            while not self._is_stopping:
                await self._pause(await self._begin_due_jobs())
            while self._under_way:
                await asyncio.wait(self._under_way)
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    def give_up(self) -> None:
        """Begin no more jobs, and cancel the current steps; other workers resume the jobs later."""
        self._gave_up = True
        self.stop()
        for task in self._under_way:
            task.cancel()

    async def _begin_due_jobs(self) -> float:
        """Lease due jobs up to the free slots; return the seconds to wait before the next call."""
        poll = self._pace.poll_seconds * (0.5 + self._chance())
        free = self._pace.slots - len(self._under_way)
        if not free:
            return poll
        try:
            due_at = await self._database.read(queue.first_due, self._kinds.keys())
            if due_at is None:
                return poll
            wait = (due_at - self._clock()) / MICROSECONDS
            if wait > 0:
                return min(poll, wait)
            leased = await self._lease(free)
        except Unavailable as error:
            _log.warning("no jobs can be leased: %s", error)
            return poll
        for job in () if self._gave_up else leased:
            task = asyncio.create_task(self._run_job(job), name=f"job {job.kind} {job.id}")
            self._under_way.add(task)
            task.add_done_callback(self._forget_task)
        return 0 if leased else self._pace.blocked_seconds

    async def _lease(self, free: int) -> Sequence[Job]:
        now = self._clock()
        terms = queue.LeaseTerms(
            token=self._new_id(),
            until=self._lease_end(),
            limit=1 if self._was_blocked else free,
            kinds=self._kinds.keys(),
            holder=self._holder,
            # Otherwise a row that is locked every time would be skipped for ever.
            waits=self._was_blocked,
        )
        # A lease lost in a power failure costs only an attempt.
        leased = await self._database.write_relaxed(queue.lease, terms, now)
        self._was_blocked = not leased
        return leased

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._woken.set()

    async def _run_job(self, job: Job) -> None:
        """Run a job's steps; cancel them when its lease is lost."""

        async def renew() -> bool:
            return await self._database.write_relaxed(queue.renew, job, self._lease_end())

        work = self._end_or_run(job)
        await run_under_lease(f"job {job.id}", work, renew, self._pace.lease_seconds / 3)

    async def _end_or_run(self, job: Job) -> None:
        """Run a job's steps, or fail it if its worker died in the last attempt."""
        kind = self._kinds[job.kind]
        if kind.is_exhausted(job.attempts - 1):
            await self._record_failure(kind, job, StepFailed(*queue.WORKER_LOST))
        else:
            await self._run_steps(kind, job)

    async def _run_steps(self, kind: JobKind, job: Job) -> None:
        current: Job | None = job
        while current is not None:
            try:
                async with asyncio.timeout(kind.step_seconds):
                    outcome = await kind.step(current)
                moved, result = await self._database.write(
                    partial(_commit, current, outcome, self._clock(), self._lease_end()),
                    keep=not self._is_stopping,
                )
            except LeaseLost:
                _log.warning("job %s was taken over; its step did not count", job.id)
                return
            except Exception as error:  # noqa: BLE001 - any error fails the attempt
                await self._record_failure(kind, current, error)
                return
            if isinstance(outcome, Done):
                self._note_end("succeeded")
            _call_after_commit(current, outcome.committed, result)
            current = moved

    async def _record_failure(self, kind: JobKind, job: Job, error: Exception) -> None:
        try:
            fail = partial(
                _count_failure, kind, job, described(job, error), self._chance(), self._clock()
            )
            failed, result = await self._database.write(fail)
        except LeaseLost:
            _log.warning("job %s was taken over while it failed", job.id)
        except Unavailable as unavailable:
            _log.warning("a failure of job %s is not recorded: %s", job.id, unavailable)
        except Exception:  # noqa: BLE001 - retried after the lease
            _log.exception("job %s (%s) cannot be given up", job.id, job.kind)
        else:
            if failed:
                self._note_end("failed")
                _call_after_commit(job, kind.gave_up_committed, result)

    def _lease_end(self) -> int:
        return queue.later(self._clock(), self._pace.lease_seconds)


def _commit(
    job: Job, outcome: Next | Done, now: int, lease_end: int, tx: Connection, *, keep: bool
) -> tuple[Job | None, object]:
    """Apply a step's change and advance its job; return the job, if still leased, and the result.

    The job stays leased if `keep` is true and its next step has no delay. Advance the job first:
    its row must be locked before the change reads anything.
    """
    moved = None
    if isinstance(outcome, Done):
        queue.succeed(tx, job, now)
    elif keep and not outcome.delay_seconds:
        moved = queue.advance(tx, job, outcome.cursor, lease_end, now)
    else:
        due_at = queue.later(now, outcome.delay_seconds)
        queue.pause(tx, job, outcome.cursor, due_at, now)
    result = None if outcome.change is None else outcome.change(tx)
    if moved is not None:
        queue.begin_step(tx, moved)
    return moved, result


def _call_after_commit(job: Job, committed: Committed | None, result: object) -> None:
    """Call `committed` after a commit; log its exception, because the commit stands."""
    if committed is not None:
        try:
            committed(result)
        except Exception:  # noqa: BLE001 - its bug, not the step's
            _log.exception("what follows a commit of job %s (%s) failed", job.id, job.kind)


def _count_failure(
    kind: JobKind, job: Job, fault: tuple[str, str, bool], spread: float, now: int, tx: Connection
) -> tuple[bool, object]:
    """Count a failed attempt; return (True if it was the last, the result of `gave_up`)."""
    code, message, is_permanent = fault

    def retry_seconds(attempts: int) -> float | None:
        if is_permanent or kind.is_exhausted(attempts):
            return None
        return kind.retry_seconds(attempts, spread)

    after = queue.record_failure(tx, job, code, message, retry_seconds, now)
    if after.state != "failed":
        return False, None
    return True, None if kind.gave_up is None else kind.gave_up(tx, after)


def described(job: Job, error: Exception) -> tuple[str, str, bool]:
    """Return (code, message, is_permanent), which describe an error to the job's owner.

    Log every error but `StepFailed`, whose words are for the owner.
    """
    if isinstance(error, StepFailed):
        return error.code, error.message, error.is_permanent
    _log.error("a step of job %s (%s) failed", job.id, job.kind, exc_info=error)
    if isinstance(error, TimeoutError):
        return "TIMEOUT", "the step took too long", False
    return "INTERNAL_ERROR", "the step failed unexpectedly", False
