"""Lifecycle policies, one at most per repository, and the runs that carried them out."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, case, func, select, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, page
from registry.metadata.control_tables import lifecycle_policies, lifecycle_runs
from registry.metadata.repositories.policy_revisions import first_revision, keep_revision

_p = lifecycle_policies.c
_r = lifecycle_runs.c
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Sorts after every id, in whatever language the database sorts."""


class StoredLifecyclePolicy(NamedTuple):
    """A repository's policy as it was accepted."""

    document: str
    revision: int
    next_run_at: int
    updated_at: int


class Run(NamedTuple):
    """A run of a policy; moments are in microseconds."""

    id: str
    repository_id: str
    document: str
    """The policy it runs by."""
    status: str
    """``running``, ``succeeded`` or ``failed``."""
    started_by: str
    """CRN; empty: its time had come."""
    evaluated: int
    expired: int
    freed_bytes: int
    fault: str | None
    started_at: int
    finished_at: int | None


_new = insert(lifecycle_policies).values(
    repository_id=bindparam("repository_id"),
    document=bindparam("document"),
    revision=first_revision("lifecycle"),
    next_run_at=bindparam("next_run_at"),
    updated_at=bindparam("now"),
)
_PUT: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["repository_id"],
        set_={
            "document": _new.excluded.document,
            "revision": _p.revision + text("1"),
            # Further off than a new policy's is what a clock that was wrong has left.
            "next_run_at": case(
                (_p.next_run_at > _new.excluded.next_run_at, _new.excluded.next_run_at),
                else_=_p.next_run_at,
            ),
            "updated_at": _new.excluded.updated_at,
        },
    )
)
_FIND: Final = Statement(
    select(_p.document, _p.revision, _p.next_run_at, _p.updated_at).where(
        _p.repository_id == bindparam("repository_id")
    )
)
_KEEP_REVISION: Final = keep_revision("lifecycle", lifecycle_policies)
_REMOVE: Final = Statement(
    lifecycle_policies.delete().where(_p.repository_id == bindparam("repository_id"))
)
_DUE: Final = Statement(
    page(
        select(_p.repository_id).where(_p.next_run_at <= bindparam("now")).order_by(_p.next_run_at)
    )
)
_POSTPONE: Final = Statement(
    lifecycle_policies.update()
    .where(_p.repository_id == bindparam("repository"), _p.next_run_at <= bindparam("now"))
    .values(next_run_at=bindparam("next_run"))
)
_ADD_RUN: Final = Statement(
    lifecycle_runs.insert().values(
        id=bindparam("id"),
        repository_id=bindparam("repository_id"),
        document=bindparam("document"),
        status=text("'running'"),
        started_by=bindparam("started_by"),
        evaluated=text("0"),
        expired=text("0"),
        freed_bytes=text("0"),
        started_at=bindparam("started_at"),
    )
)


def _columns() -> Select[Any]:
    return select(*(_r[name] for name in Run._fields)).where(
        _r.repository_id == bindparam("repository_id")
    )


_FIND_RUN: Final = Statement(_columns().where(_r.id == bindparam("id")))
_FIND_RUNNING: Final = Statement(_columns().where(_r.status == text("'running'")))
_LIST_RUNS: Final = Statement(
    page(_columns().where(_r.id < bindparam("before")).order_by(_r.id.desc()))
)
_COUNT_RUNS: Final = Statement(
    select(func.count())
    .select_from(lifecycle_runs)
    .where(_r.repository_id == bindparam("repository_id"))
)
_ADVANCE: Final = Statement(
    lifecycle_runs.update()
    .where(_r.id == bindparam("run_id"), _r.repository_id == bindparam("repository"))
    .values(
        evaluated=_r.evaluated + bindparam("more_evaluated"),
        expired=_r.expired + bindparam("more_expired"),
        freed_bytes=_r.freed_bytes + bindparam("more_freed"),
    )
)
_FINISH: Final = Statement(
    lifecycle_runs.update()
    .where(
        _r.id == bindparam("run_id"),
        _r.repository_id == bindparam("repository"),
        _r.status == text("'running'"),
    )
    .values(status=bindparam("outcome"), fault=bindparam("reason"), finished_at=bindparam("now"))
)
_FORGET: Final = Statement(
    lifecycle_runs.delete().where(
        _r.repository_id == bindparam("repository_id"), _r.finished_at <= bindparam("before")
    )
)


def put_policy(
    tx: Connection, repository_id: str, document: str, now: int, next_run_at: int
) -> StoredLifecyclePolicy:
    """Store a policy in place of the one a repository had, and return it.

    It runs when the one before it would have, and not after `next_run_at`.
    """
    tx.execute(
        _PUT, repository_id=repository_id, document=document, next_run_at=next_run_at, now=now
    )
    stored = find_policy(tx, repository_id)
    assert stored is not None
    return stored


def find_policy(tx: Connection, repository_id: str) -> StoredLifecyclePolicy | None:
    """Return a repository's policy."""
    row = tx.row(_FIND, repository_id=repository_id)
    return StoredLifecyclePolicy(*row) if row else None


def remove_policy(tx: Connection, repository_id: str) -> bool:
    """Remove a repository's policy; return False if it had none.

    Lock the repository first.
    """
    tx.execute(_KEEP_REVISION, repository_id=repository_id)
    return tx.execute(_REMOVE, repository_id=repository_id) == 1


def list_due(tx: Connection, now: int, limit: int) -> list[str]:
    """Return up to `limit` repositories whose policies are to run now."""
    return [row[0] for row in tx.rows(_DUE, now=now, limit=limit)]


def postpone(tx: Connection, repository_id: str, now: int, next_run_at: int) -> bool:
    """Move on a run that is due now; False when another did, or there is no policy any more."""
    return tx.execute(_POSTPONE, repository=repository_id, now=now, next_run=next_run_at) == 1


def add_run(
    tx: Connection, run_id: str, repository_id: str, document: str, started_by: str, now: int
) -> None:
    """Add a run; of a repository one runs at a time."""
    tx.execute(
        _ADD_RUN,
        id=run_id,
        repository_id=repository_id,
        document=document,
        started_by=started_by,
        started_at=now,
    )


def find_run(tx: Connection, repository_id: str, run_id: str) -> Run | None:
    """Return a run of a repository."""
    row = tx.row(_FIND_RUN, repository_id=repository_id, id=run_id)
    return Run(*row) if row else None


def find_running(tx: Connection, repository_id: str) -> Run | None:
    """Return the run of a repository that has not ended."""
    row = tx.row(_FIND_RUNNING, repository_id=repository_id)
    return Run(*row) if row else None


def list_runs(tx: Connection, repository_id: str, before: str, limit: int) -> list[Run]:
    """Return up to `limit` runs of a repository before the id `before`, the newest first."""
    rows = tx.rows(_LIST_RUNS, repository_id=repository_id, before=before or _LAST, limit=limit)
    return [Run(*row) for row in rows]


def count_runs(tx: Connection, repository_id: str) -> int:
    """Return how many runs of a repository are known."""
    row = tx.row(_COUNT_RUNS, repository_id=repository_id)
    assert row is not None
    return int(row[0])


def advance_run(
    tx: Connection,
    repository_id: str,
    run_id: str,
    *,
    evaluated: int = 0,
    expired: int = 0,
    freed_bytes: int = 0,
) -> None:
    """Add to what a run has done."""
    tx.execute(
        _ADVANCE,
        repository=repository_id,
        run_id=run_id,
        more_evaluated=evaluated,
        more_expired=expired,
        more_freed=freed_bytes,
    )


def finish_run(
    tx: Connection, repository_id: str, run_id: str, now: int, fault: str | None = None
) -> Run | None:
    """End a run, which has failed when there is a fault, and return it.

    One that has ended before stays as it is, and None is returned.
    """
    ended = tx.execute(
        _FINISH,
        repository=repository_id,
        run_id=run_id,
        outcome="succeeded" if fault is None else "failed",
        reason=fault,
        now=now,
    )
    return find_run(tx, repository_id, run_id) if ended else None


def forget_runs(tx: Connection, repository_id: str, before: int) -> None:
    """Delete the runs of a repository that ended before a moment."""
    tx.execute(_FORGET, repository_id=repository_id, before=before)
