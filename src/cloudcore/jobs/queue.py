"""The queue's transactions: enqueue, lease, advance, finish, fail and delete jobs.

Every change of a leased job checks its lease token. A worker that lost its lease (it was too slow,
or disconnected) finds no such row: `advance`, `pause`, `succeed` and `record_failure` raise
`LeaseLost`, so its whole transaction, including the step's change, is rolled back. The clocks of
several hosts need only agree roughly: correctness depends on the token, not on time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import microseconds, uuid7
from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ONE, bound, columns_of, deletion, first, given, json_text
from cloudcore.db.statement import Statement, listed, page, text_list
from cloudcore.jobs.faults import Fault, next_fault
from cloudcore.jobs.tables import NO_LEASE, UNFINISHED, jobs

KEPT_SECONDS: Final = 7 * 24 * 3600
WORKER_LOST: Final = ("WORKER_LOST", "the worker died, or was cut off, in the last attempt")


class LeaseLost(Exception):
    """Another worker may have the job now; this transaction is rolled back."""


class NewJob(NamedTuple):
    """A job to enqueue."""

    kind: str
    arguments: Any = None
    """JSON."""
    account_id: str | None = None
    """The owning account; None for the platform's own jobs."""
    resource: str | None = None
    """CRN of the resource that the job works on."""
    dedup_key: str | None = None
    """Unique among unfinished jobs of one kind."""
    delay_seconds: float = 0
    hastens: bool = False
    """True to make an unfinished job of the same kind and key due no later than this job would be.
    If a worker has leased that job, it becomes due by then as soon as its step has ended."""


class Job(NamedTuple):
    """A job's row; moments are in microseconds since the epoch."""

    id: str
    kind: str
    account_id: str | None
    resource: str | None
    state: str
    arguments: Any
    cursor: Any
    """State of the steps so far; None before the first step has ended."""
    attempts: int
    due_at: int | None
    lease_token: str | None
    fault: Fault | None
    created_at: int
    updated_at: int
    finished_at: int | None
    lease_holder: str | None
    """Id of the worker process that has the lease; None if it has no id."""


_j = jobs.c
_COLUMNS: Final = [_j[name] for name in Job._fields]
_IS_OURS: Final = (given(_j.id), _j.lease_token == sa.bindparam("held"))


_new: Final = insert(jobs).values(
    **bound(("id", "kind", "dedup_key", "account_id", "resource", "arguments", "due_at")),
    state=sa.text("'queued'"),
    cursor=sa.text("'null'"),
    attempts=sa.text("0"),
    created_at=sa.bindparam("now"),
    updated_at=sa.bindparam("now"),
)
_ENQUEUE: Final = Statement(
    # A no-op update that returns and locks the existing row: see `enqueue`.
    _new.on_conflict_do_update(
        index_elements=["kind", "dedup_key"],
        index_where=UNFINISHED,
        set_={"updated_at": _j.updated_at},
    ).returning(_j.id)
)
_ENQUEUE_OR_HASTEN: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["kind", "dedup_key"],
        index_where=UNFINISHED,
        set_={
            "due_at": sa.case(
                (
                    _j.lease_token.is_(None) & (_j.due_at > _new.excluded.due_at),
                    _new.excluded.due_at,
                ),
                else_=_j.due_at,
            ),
            "wake_at": sa.case(
                (_j.lease_token.is_(None), sa.text("NULL")),
                (_j.wake_at < _new.excluded.due_at, _j.wake_at),
                else_=_new.excluded.due_at,
            ),
        },
    ).returning(_j.id)
)
_FIRST_DUE: Final = Statement(
    first(
        sa.select(_j.due_at)
        .where(_j.due_at.is_not(None), _j.kind.in_(listed("kinds")))
        .order_by(_j.due_at)
    )
)
_DUE: Final = page(
    sa.select(_j.id)
    .where(_j.due_at <= sa.bindparam("now"), _j.kind.in_(listed("kinds")))
    .order_by(_j.due_at)
)
_RELEASED: Final = {**NO_LEASE, "wake_at": sa.text("NULL")}
_DUE_AFTER_RELEASE: Final = sa.case(
    (_j.wake_at < sa.bindparam("due_at"), _j.wake_at),
    else_=sa.bindparam("due_at", type_=sa.BigInteger),
)
_LOCK_DUE_AND_FREE: Final = Statement(_DUE.with_for_update(skip_locked=True))
_LOCK_DUE: Final = Statement(_DUE.with_for_update())
_LEASE: Final = Statement(
    sa.update(jobs)
    .where(_j.id.in_(listed("ids")))
    .values(
        state=sa.text("'running'"),
        attempts=_j.attempts + ONE,
        due_at=sa.bindparam("lease_end"),
        lease_token=sa.bindparam("lease_token"),
        lease_holder=sa.bindparam("lease_holder"),
        wake_at=sa.text("NULL"),
        updated_at=sa.bindparam("now"),
    )
    .returning(*_COLUMNS)
)
_RENEW: Final = Statement(sa.update(jobs).where(*_IS_OURS).values(due_at=sa.bindparam("lease_end")))
_CONTINUE: Final = Statement(
    sa.update(jobs)
    .where(*_IS_OURS)
    .values(
        cursor=sa.bindparam("cursor"),
        attempts=sa.text("1"),
        due_at=sa.bindparam("lease_end"),
        fault=sa.text("NULL"),
        updated_at=sa.bindparam("now"),
    )
)
_BEGIN_STEP: Final = Statement(
    sa.update(jobs).where(*_IS_OURS, _j.wake_at.is_not(None)).values(wake_at=sa.text("NULL"))
)
_RELEASE: Final = Statement(
    sa.update(jobs)
    .where(*_IS_OURS)
    .values(
        cursor=sa.bindparam("cursor"),
        attempts=sa.text("0"),
        due_at=_DUE_AFTER_RELEASE,
        fault=sa.text("NULL"),
        updated_at=sa.bindparam("now"),
        **_RELEASED,
    )
    .returning(*_COLUMNS)
)
_LOCK_OURS: Final = Statement(columns_of(jobs, Job._fields).where(*_IS_OURS).with_for_update())
_POSTPONE: Final = Statement(
    sa.update(jobs)
    .where(given(_j.id))
    .values(
        due_at=_DUE_AFTER_RELEASE,
        fault=sa.bindparam("fault"),
        updated_at=sa.bindparam("now"),
        **_RELEASED,
    )
    .returning(_j.due_at)
)
_FINISHED: Final = {
    "due_at": sa.text("NULL"),
    "updated_at": sa.bindparam("now"),
    "finished_at": sa.bindparam("now"),
    **_RELEASED,
}
_SUCCEED: Final = Statement(
    sa.update(jobs)
    .where(*_IS_OURS)
    .values(state=sa.text("'succeeded'"), fault=sa.text("NULL"), **_FINISHED)
)
_FAIL: Final = Statement(
    sa.update(jobs)
    .where(given(_j.id))
    .values(state=sa.text("'failed'"), fault=sa.bindparam("fault"), **_FINISHED)
)
forget_finished: Final = deletion(_j.finished_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the jobs that finished more than `KEPT_SECONDS` ago."""


def enqueue(tx: Connection, new: NewJob, now: int) -> str:
    """Enqueue a job in the transaction of its cause; return its id.

    If a job of this kind and `dedup_key` is unfinished, return that job's id; if `new` hastens, the
    job may become due earlier. The job is locked until `tx` ends, so it cannot finish without
    seeing this transaction's writes. The commit wakes this process's workers.
    """
    tx.announce()
    row = tx.row(
        _ENQUEUE_OR_HASTEN if new.hastens else _ENQUEUE,
        id=uuid7(now),
        kind=new.kind,
        dedup_key=new.dedup_key,
        account_id=new.account_id,
        resource=new.resource,
        arguments=json_text(new.arguments),
        due_at=later(now, new.delay_seconds),
        now=now,
    )
    assert row is not None
    identity: str = row[0]
    return identity


def first_due(tx: Connection, kinds: Collection[str]) -> int | None:
    """Return when the next job of these kinds is due, or None if there is none."""
    row = tx.row(_FIRST_DUE, kinds=text_list(sorted(kinds)))
    return row[0] if row else None


class LeaseTerms(NamedTuple):
    """The parameters of a worker's lease."""

    token: str
    until: int
    """The end of the lease, in microseconds since the epoch."""
    limit: int
    kinds: Collection[str]
    """The kinds that the worker can run."""
    holder: str | None = None
    """Id of the worker process, so that its leases can be freed if it dies."""
    waits: bool = False
    """True to wait for locked rows instead of skipping them."""


def lease(tx: Connection, terms: LeaseTerms, now: int) -> Sequence[Job]:
    """Lease up to `terms.limit` jobs, those that have been due longest, and return them.

    Each lease counts as an attempt at the step.
    """
    statement = _LOCK_DUE if terms.waits else _LOCK_DUE_AND_FREE
    kinds = text_list(sorted(terms.kinds))
    due = [row[0] for row in tx.rows(statement, now=now, kinds=kinds, limit=terms.limit)]
    if not due:
        return []
    leased = tx.rows(
        _LEASE,
        ids=text_list(due),
        lease_end=terms.until,
        lease_token=terms.token,
        lease_holder=terms.holder,
        now=now,
    )
    return sorted((_job(row) for row in leased), key=lambda job: due.index(job.id))


def renew(tx: Connection, job: Job, until: int) -> bool:
    """Extend the lease; return False if it was lost."""
    return tx.execute(_RENEW, id=job.id, held=job.lease_token, lease_end=until) == 1


def advance(tx: Connection, job: Job, cursor: object, until: int, now: int) -> Job:
    """Record that a step has ended; extend the lease to `until` for the next step.

    Return the changed job; raise `LeaseLost` if the lease was lost.
    """
    held = {"id": job.id, "held": job.lease_token}
    if not tx.execute(_CONTINUE, **held, cursor=json_text(cursor), lease_end=until, now=now):
        raise LeaseLost
    return job._replace(cursor=cursor, attempts=1, due_at=until, fault=None, updated_at=now)


def begin_step(tx: Connection, job: Job) -> None:
    """Clear the job's `wake_at`, because the next step reads the changes that woke the job.

    Call this at the end of the transaction, after `advance` and the change of the ended step.
    """
    tx.execute(_BEGIN_STEP, id=job.id, held=job.lease_token)


def pause(tx: Connection, job: Job, cursor: object, due_at: int, now: int) -> Job:
    """Record that a step has ended; release the job until `due_at`, or until an earlier wake.

    Return the changed job; raise `LeaseLost` if the lease was lost.
    """
    held = {"id": job.id, "held": job.lease_token}
    row = tx.row(_RELEASE, **held, cursor=json_text(cursor), due_at=due_at, now=now)
    if row is None:
        raise LeaseLost
    return _job(row)


def succeed(tx: Connection, job: Job, now: int) -> None:
    """Finish a job as succeeded; raise `LeaseLost` if the lease was lost."""
    if not tx.execute(_SUCCEED, id=job.id, held=job.lease_token, now=now):
        raise LeaseLost


def record_failure(
    tx: Connection,
    job: Job,
    code: str,
    message: str,
    retry_seconds: Callable[[int], float | None],
    now: int,
) -> Job:
    """Count a failed attempt; reschedule or fail the job. Return the changed job.

    `retry_seconds` maps the number of attempts to the pause before the next, or None to give up.
    Raise `LeaseLost` if the lease was lost.
    """
    row = tx.row(_LOCK_OURS, id=job.id, held=job.lease_token)
    if row is None:
        raise LeaseLost
    current = _job(row)
    fault = next_fault(current.fault, code, message, now)
    pause = retry_seconds(current.attempts)
    after = current._replace(lease_token=None, lease_holder=None, fault=fault, updated_at=now)
    if pause is None:
        tx.execute(_FAIL, id=job.id, fault=json_text(fault), now=now)
        return after._replace(state="failed", due_at=None, finished_at=now)
    row = tx.row(_POSTPONE, id=job.id, fault=json_text(fault), due_at=later(now, pause), now=now)
    assert row is not None
    return after._replace(due_at=row[0])


def later(now: int, seconds: float) -> int:
    """Return the moment `seconds` after `now`."""
    return now + microseconds(seconds)


def _job(row: Row) -> Job:
    job = Job(*row)
    return job._replace(
        arguments=msgspec.json.decode(row[5]),
        cursor=msgspec.json.decode(row[6]),
        fault=msgspec.json.decode(row[10], type=Fault) if row[10] else None,
    )
