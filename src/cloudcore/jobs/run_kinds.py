"""Kinds of jobs that are runs: a family writes the step, and the run ends with its job.

The step gets the run. `Done` ends the run as succeeded, in the transaction of its change. A
`StepFailed` is retried as for any job; when the job is given up, the run ends as failed, in the
same transaction and with the same fault. So a step, or its change, raises a permanent `StepFailed`
when the run cannot continue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.jobs import runs
from cloudcore.jobs.faults import Fault
from cloudcore.jobs.kinds import Change, Committed, Done, JobKind, Next
from cloudcore.jobs.queue import WORKER_LOST, Job
from cloudcore.jobs.runs import Run, RunArguments

RunStep = Callable[[Run, Job], Awaitable[Next | Done]]
"""Does the run's work at `job.cursor` and returns what to commit."""
Ended = Callable[[Run], None]
"""Called once with an ended run, after the commit that ended it."""

Ending = Callable[[Connection, Run, Job], None]
"""Called with a run that ends and its job, in the transaction that ends it."""

MAX_ATTEMPTS: Final = 10


def run_kind(
    name: str,
    step: RunStep,
    *,
    database: Database,
    clock: Clock,
    ended: Ended = lambda _: None,
    ending: Ending = lambda _tx, _run, _job: None,
    max_attempts: int | None = MAX_ATTEMPTS,
) -> JobKind:
    """Return the kind of job for the runs that `runs.start_run` starts under the same name."""
    return JobKind(
        name=name,
        step=partial(_take_step, step, database, clock, ended, ending),
        max_attempts=max_attempts,
        gave_up=partial(_fail, ending),
        gave_up_committed=partial(_tell, ended),
    )


async def _take_step(
    step: RunStep, database: Database, clock: Clock, ended: Ended, ending: Ending, job: Job
) -> Next | Done:
    run = await database.read(runs.find_run_of_job, _run_id(job))
    if run is None or run.state != "running":
        return Done()
    outcome = await step(run, job)
    if isinstance(outcome, Next):
        return outcome
    return Done(
        partial(_succeed, job, clock(), outcome.change, ending),
        partial(_tell_both, ended, outcome.committed),
    )


def _succeed(
    job: Job, now: int, change: Change | None, ending: Ending, tx: Connection
) -> tuple[Run | None, object]:
    result = None if change is None else change(tx)
    return _end(tx, job, now, None, ending), result


def _end(tx: Connection, job: Job, now: int, fault: Fault | None, ending: Ending) -> Run | None:
    run = runs.end_run(tx, _run_id(job), now, fault)
    if run is not None:
        ending(tx, run, job)
    return run


def _fail(ending: Ending, tx: Connection, job: Job) -> Run | None:
    assert job.fault is not None
    assert job.finished_at is not None
    fault = job.fault
    if fault.code == WORKER_LOST[0]:
        fault = msgspec.structs.replace(fault, message="")  # the code is enough
    return _end(tx, job, job.finished_at, fault, ending)


def _tell(ended: Ended, run: Run | None) -> None:
    if run is not None:
        ended(run)


def _tell_both(
    ended: Ended, committed: Committed | None, results: tuple[Run | None, object]
) -> None:
    run, result = results
    _tell(ended, run)
    if committed is not None:
        committed(result)


def _run_id(job: Job) -> str:
    return msgspec.convert(job.arguments, RunArguments).run_id
