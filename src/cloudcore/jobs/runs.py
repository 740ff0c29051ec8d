"""Runs: long jobs that a caller starts and can watch, with a report afterwards.

Runs of all kinds have a state, progress, counts by name, faults, and a starter. For each kind and
scope (such as an account), one runs at a time. A job does the work, with a step function that a
family writes (`run_kind`); the changes of its steps also add to the run's progress.

The step receives the run. `Done` ends the run as succeeded, in the transaction of its change. A
`StepFailed` is retried as for any job; when the job is given up, the run ends as failed, in the
same transaction and with the same fault. So a step, or its change, raises a permanent `StepFailed`
when the run cannot continue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import bound, columns_of, count, find_all, find_one, given, json_text
from cloudcore.db.statement import Statement, paged
from cloudcore.jobs import faults
from cloudcore.jobs.faults import Fault
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import WORKER_LOST, Job, NewJob, enqueue
from cloudcore.jobs.tables import RUNNING, runs

_r = runs.c
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Sorts after every id, in any collation."""


class NewRun(NamedTuple):
    """A run to start."""

    id: str
    kind: str
    """Kind of the run, and of its job."""
    account_id: str
    scope_id: str
    """Id of the resource that the run covers."""
    resource: str
    """CRN of that resource."""
    started_by: str
    """CRN of the caller; empty if it was scheduled."""
    counts: Sequence[str]
    """Names of its counts; all start at 0."""
    kept_seconds: float
    """Seconds for which ended runs of this kind and scope are kept; the start of a run deletes
    older ones."""
    arguments: Any = None
    """JSON."""
    started_by_source: str | None = None
    """A stored `SourceIdentity`: the person or service that assumed the caller's role."""


class Run(NamedTuple):
    """A run's row; moments are in microseconds since the epoch."""

    id: str
    kind: str
    account_id: str
    scope_id: str
    state: str
    """``running``, ``succeeded`` or ``failed``."""
    arguments: Any
    done: int
    """Units done, in the units of its kind."""
    total: int | None
    """Units in total; None if not known yet."""
    counts: Mapping[str, int]
    faults: Sequence[Fault]
    """Faults that did not end the run."""
    fault: str | None
    """The fault that made it fail."""
    started_by: str
    started_at: int
    finished_at: int | None
    started_by_source: str | None = None
    """A stored `SourceIdentity`: the person or service that assumed the caller's role."""


class Progress(NamedTuple):
    """Progress to add to a run."""

    counts: Mapping[str, int]
    """Increments of the run's counts, by the names it was started with."""
    done: int | None = None
    """New number of units done; None leaves it unchanged."""
    total: int | None = None
    """New total of units; None leaves it unchanged."""


_OF: Final = given(_r.scope_id, _r.kind)
_INSERT: Final = Statement(
    insert(runs)
    .values(
        **bound(("id", "kind", "account_id", "scope_id", "arguments", "counts")),
        **bound(("started_by", "started_by_source")),
        state=sa.text("'running'"),
        done=sa.text("0"),
        faults=sa.text("'[]'"),
        started_at=sa.bindparam("now"),
    )
    # A no-op update that returns and locks the row of the unfinished run.
    .on_conflict_do_update(
        index_elements=["scope_id", "kind"],
        index_where=RUNNING,
        set_={"started_at": _r.started_at},
    )
    .returning(*(_r[name] for name in Run._fields))
)
_ROWS: Final = columns_of(runs, Run._fields)
_BY_ID: Final = _ROWS.where(given(_r.id))
_FIND: Final = Statement(_BY_ID.where(_OF))
_FIND_BY_ID: Final = Statement(_BY_ID)
_LOCK: Final = Statement(_BY_ID.with_for_update())
_FIND_RUNNING: Final = Statement(_ROWS.where(_OF, RUNNING))
_LIST: Final = paged(_ROWS.where(_OF, _r.id < sa.bindparam("before")).order_by(_r.id.desc()))
_COUNT: Final = Statement(sa.select(sa.func.count()).select_from(runs).where(_OF))
_PROGRESS: Final = Statement(
    runs.update()
    .where(_r.id == sa.bindparam("run_id"))
    .values(
        done=sa.bindparam("now_done"),
        total=sa.bindparam("now_total"),
        counts=sa.bindparam("now_counts"),
        faults=sa.bindparam("now_faults"),
    )
)
_END: Final = Statement(
    runs.update()
    .where(_r.id == sa.bindparam("run_id"))
    .values(
        state=sa.bindparam("outcome"),
        faults=sa.bindparam("now_faults"),
        fault=sa.bindparam("reason"),
        finished_at=sa.bindparam("now"),
    )
)
_FORGET: Final = Statement(runs.delete().where(_OF, _r.finished_at <= sa.bindparam("before")))
_REMOVE: Final = Statement(runs.delete().where(given(_r.scope_id)))


def start_run(tx: Connection, new: NewRun, now: int) -> Run:
    """Start a run and enqueue its job, or return the unfinished run of this kind and scope.

    If the returned run does not have the id `new.id`, no run was started. A start deletes old runs
    of this kind and scope.
    """
    row = tx.row(
        _INSERT,
        id=new.id,
        kind=new.kind,
        account_id=new.account_id,
        scope_id=new.scope_id,
        arguments=json_text(new.arguments),
        counts=json_text(dict.fromkeys(new.counts, 0)),
        started_by=new.started_by,
        started_by_source=new.started_by_source,
        now=now,
    )
    assert row is not None
    run = _run(*row)
    if run.id == new.id:
        before = now - int(new.kept_seconds * MICROSECONDS)
        tx.execute(_FORGET, scope_id=new.scope_id, kind=new.kind, before=before)
        arguments = RunArguments(new.id)
        job = NewJob(new.kind, arguments, account_id=new.account_id, resource=new.resource)
        enqueue(tx, job, now)
    return run


def find_run(tx: Connection, kind: str, scope_id: str, run_id: str) -> Run | None:
    """Return a run of a kind and scope, or None if there is no such run."""
    return find_one(tx, _run, _FIND, kind=kind, scope_id=scope_id, id=run_id)


def _find_run_by_id(tx: Connection, run_id: str) -> Run | None:
    """Return a run of any kind and scope, or None if it was deleted."""
    return find_one(tx, _run, _FIND_BY_ID, id=run_id)


def find_running(tx: Connection, kind: str, scope_id: str) -> Run | None:
    """Return the unfinished run of a kind and scope, or None if there is none."""
    return find_one(tx, _run, _FIND_RUNNING, kind=kind, scope_id=scope_id)


def list_runs(tx: Connection, kind: str, scope_id: str, before: str, limit: int) -> list[Run]:
    """Return up to `limit` runs, newest first; a non-empty `before` is the id to start after."""
    page_of = {"kind": kind, "scope_id": scope_id, "before": before or _LAST, "limit": limit}
    return find_all(tx, _run, _LIST, **page_of)


def count_runs(tx: Connection, kind: str, scope_id: str) -> int:
    """Count the runs of a kind and scope."""
    return count(tx, _COUNT, kind=kind, scope_id=scope_id)


def progress_run(tx: Connection, run_id: str, progress: Progress) -> None:
    """Add progress to a run, unless it was deleted; its row is locked until `tx` ends.

    Raise `KeyError` for a count with which the run was not started.
    """
    run = _lock(tx, run_id)
    if run is None:
        return
    counts = dict(run.counts)
    for name, more in progress.counts.items():
        counts[name] += more
    done = run.done if progress.done is None else progress.done
    total = run.total if progress.total is None else progress.total
    _write(tx, run._replace(counts=counts, done=done, total=total))


def add_run_fault(
    tx: Connection, run_id: str, code: str, message: str, now: int, *, subject: str = ""
) -> None:
    """Add a fault to a run, which continues; do nothing if the run was deleted.

    `subject` is the id or CRN of the affected resource; empty if the fault affects the whole run.
    """
    run = _lock(tx, run_id)
    if run is not None:
        known = faults.add_fault(run.faults, code, message, now, subject=subject)
        _write(tx, run._replace(faults=known))


def end_run(tx: Connection, run_id: str, now: int, fault: Fault | None = None) -> Run | None:
    """End a run, as failed if `fault` is passed, and return it.

    Return None, changing nothing, if it has already ended or was deleted.
    """
    run = _lock(tx, run_id)
    if run is None or run.state != "running":
        return None
    ended = run._replace(state="succeeded", finished_at=now)
    if fault is not None:
        text = f"{fault.code}: {fault.message}" if fault.message else fault.code
        ended = ended._replace(state="failed", fault=text, faults=[*run.faults, fault])
    tx.execute(
        _END,
        run_id=run_id,
        outcome=ended.state,
        now_faults=json_text(ended.faults),
        reason=ended.fault,
        now=now,
    )
    return ended


def remove_runs(tx: Connection, scope_id: str) -> None:
    """Delete the runs of a deleted scope, such as an account."""
    tx.execute(_REMOVE, scope_id=scope_id)


class RunArguments(msgspec.Struct, frozen=True):
    """The arguments of a run's job."""

    run_id: str


def _lock(tx: Connection, run_id: str) -> Run | None:
    return find_one(tx, _run, _LOCK, id=run_id)


def _write(tx: Connection, run: Run) -> None:
    tx.execute(
        _PROGRESS,
        run_id=run.id,
        now_done=run.done,
        now_total=run.total,
        now_counts=json_text(run.counts),
        now_faults=json_text(run.faults),
    )


def _run(*row: Any) -> Run:  # noqa: ANN401 - as the columns
    return Run(*row)._replace(
        arguments=msgspec.json.decode(row[5]),
        counts=msgspec.json.decode(row[8], type=dict[str, int]),
        faults=msgspec.json.decode(row[9], type=list[Fault]),
    )


RunStep = Callable[[Run, Job], Awaitable[Next | Done]]
"""Does the run's work at `job.cursor` and returns what to commit."""
OnEnd = Callable[[Connection, Run, Job], None]
"""Called with an ended run and its job, in the transaction that ends it."""
OnEndCommitted = Callable[[Run], None]
"""Called once with an ended run, after the commit that ended it."""


def run_kind(
    name: str,
    step: RunStep,
    *,
    database: Database,
    clock: Clock,
    on_end: OnEnd = lambda _tx, _run, _job: None,
    on_end_committed: OnEndCommitted = lambda _run: None,
) -> JobKind:
    """Return the kind of the jobs that do the work of runs of the kind `name`.

    `step` does the work. `on_end` is called in the transaction that ends a run, `on_end_committed`
    after that transaction has committed.
    """
    work = _RunWork(step, database, clock, on_end, on_end_committed)
    return JobKind(
        name=name,
        step=work.take_step,
        gave_up=work.end_failed,
        gave_up_committed=work.call_if_ended,
    )


class _RunWork(NamedTuple):
    """Runs the jobs of runs, and ends each run together with its job."""

    step: RunStep
    database: Database
    clock: Clock
    on_end: OnEnd
    on_end_committed: OnEndCommitted

    async def take_step(self, job: Job) -> Next | Done:
        run = await self.database.read(_find_run_by_id, _run_id(job))
        if run is None or run.state != "running":
            return Done()
        outcome = await self.step(run, job)
        if isinstance(outcome, Next):
            return outcome
        change, committed, now = outcome.change, outcome.committed, self.clock()

        def end_succeeded(tx: Connection) -> tuple[Run | None, object]:
            result = None if change is None else change(tx)
            return self._end(tx, job, now, None), result

        def call_after_commit(results: tuple[Run | None, object]) -> None:
            ended, result = results
            self.call_if_ended(ended)
            if committed is not None:
                committed(result)

        return Done(end_succeeded, call_after_commit)

    def end_failed(self, tx: Connection, job: Job) -> Run | None:
        assert job.fault is not None
        assert job.finished_at is not None
        fault = job.fault
        if fault.code == WORKER_LOST[0]:
            fault = msgspec.structs.replace(fault, message="")  # the code is enough
        return self._end(tx, job, job.finished_at, fault)

    def call_if_ended(self, run: Run | None) -> None:
        if run is not None:
            self.on_end_committed(run)

    def _end(self, tx: Connection, job: Job, now: int, fault: Fault | None) -> Run | None:
        run = end_run(tx, _run_id(job), now, fault)
        if run is not None:
            self.on_end(tx, run, job)
        return run


def _run_id(job: Job) -> str:
    return msgspec.convert(job.arguments, RunArguments).run_id
