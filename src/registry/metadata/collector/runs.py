"""Runs of the collector, one at a time in an account."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, func, select, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, page
from cloudcore.identity.tables import accounts
from registry.metadata.collection_tables import gc_runs

_r = gc_runs.c
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Sorts after every id, in whatever language the database sorts."""


class Run(NamedTuple):
    """A run of the collector over one account; moments are in microseconds."""

    id: str
    account_id: str
    status: str
    """``running``, ``succeeded`` or ``failed``."""
    started_by: str
    """CRN; empty: its time had come."""
    unlinked: int
    condemned: int
    swept: int
    removed: int
    freed_bytes: int
    kept: int
    fault: str | None
    started_at: int
    finished_at: int | None


class Progress(NamedTuple):
    """What a part of a run has done."""

    unlinked: int = 0
    """Links that no manifest referenced."""
    condemned: int = 0
    """Objects that lost their last link by that."""
    swept: int = 0
    """Objects whose rows went to the quarantine."""
    removed: int = 0
    """Objects whose bytes are gone."""
    freed_bytes: int = 0
    """Of these, on disk."""
    kept: int = 0
    """Condemned objects that something refers to again."""


_COUNTERS: Final = Progress._fields
_LOCK_ACCOUNT: Final = Statement(
    select(accounts.c.id)
    .where(accounts.c.id == bindparam("account_id"))
    .with_for_update(key_share=True)
)
_ADD: Final = Statement(
    gc_runs.insert().values(
        id=bindparam("id"),
        account_id=bindparam("account_id"),
        status=text("'running'"),
        started_by=bindparam("started_by"),
        started_at=bindparam("started_at"),
        **dict.fromkeys(_COUNTERS, text("0")),
    )
)


def _columns() -> Select[Any]:
    return select(*(_r[name] for name in Run._fields)).where(
        _r.account_id == bindparam("account_id")
    )


_FIND: Final = Statement(_columns().where(_r.id == bindparam("id")))
_FIND_RUNNING: Final = Statement(_columns().where(_r.status == text("'running'")))
_LIST: Final = Statement(page(_columns().where(_r.id < bindparam("before")).order_by(_r.id.desc())))
_COUNT: Final = Statement(
    select(func.count()).select_from(gc_runs).where(_r.account_id == bindparam("account_id"))
)
_ADVANCE: Final = Statement(
    gc_runs.update()
    .where(_r.id == bindparam("run_id"), _r.account_id == bindparam("account"))
    .values({name: _r[name] + bindparam(f"more_{name}") for name in _COUNTERS})
)
_FINISH: Final = Statement(
    gc_runs.update()
    .where(
        _r.id == bindparam("run_id"),
        _r.account_id == bindparam("account"),
        _r.status == text("'running'"),
    )
    .values(status=bindparam("outcome"), fault=bindparam("reason"), finished_at=bindparam("now"))
)
_FORGET: Final = Statement(
    gc_runs.delete().where(
        _r.account_id == bindparam("account_id"), _r.finished_at <= bindparam("before")
    )
)


def lock_account(tx: Connection, account_id: str) -> None:
    """Let no other run over the account start until the change ends; pushes go on."""
    tx.row(_LOCK_ACCOUNT, account_id=account_id)


def add_run(tx: Connection, run_id: str, account_id: str, started_by: str, now: int) -> None:
    """Add a run; of an account one runs at a time."""
    tx.execute(_ADD, id=run_id, account_id=account_id, started_by=started_by, started_at=now)


def find_run(tx: Connection, account_id: str, run_id: str) -> Run | None:
    """Return a run of an account."""
    row = tx.row(_FIND, account_id=account_id, id=run_id)
    return Run(*row) if row else None


def find_running(tx: Connection, account_id: str) -> Run | None:
    """Return the run of an account that has not ended."""
    row = tx.row(_FIND_RUNNING, account_id=account_id)
    return Run(*row) if row else None


def list_runs(tx: Connection, account_id: str, before: str, limit: int) -> list[Run]:
    """Return up to `limit` runs of an account before the id `before`, the newest first."""
    rows = tx.rows(_LIST, account_id=account_id, before=before or _LAST, limit=limit)
    return [Run(*row) for row in rows]


def count_runs(tx: Connection, account_id: str) -> int:
    """Return how many runs of an account are known."""
    row = tx.row(_COUNT, account_id=account_id)
    assert row is not None
    return int(row[0])


def advance_run(tx: Connection, account_id: str, run_id: str, progress: Progress) -> None:
    """Add to what a run has done."""
    more = {f"more_{name}": value for name, value in progress._asdict().items()}
    tx.execute(_ADVANCE, account=account_id, run_id=run_id, **more)


def finish_run(
    tx: Connection, account_id: str, run_id: str, now: int, fault: str | None = None
) -> Run | None:
    """End a run, which has failed when there is a fault, and return it.

    One that has ended before stays as it is, and None is returned.
    """
    ended = tx.execute(
        _FINISH,
        account=account_id,
        run_id=run_id,
        outcome="succeeded" if fault is None else "failed",
        reason=fault,
        now=now,
    )
    return find_run(tx, account_id, run_id) if ended else None


def forget_runs(tx: Connection, account_id: str, before: int) -> None:
    """Delete the runs of an account that ended before a moment."""
    tx.execute(_FORGET, account_id=account_id, before=before)
