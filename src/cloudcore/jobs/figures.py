"""Figures of the jobs and chores, at a cost that does not grow with their number."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, case, func, literal_column, select, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.jobs.tables import jobs, schedules

MOST: Final = 1000
"""Unfinished jobs that are counted, beginning with those due first."""

_FIRST: Final = (
    select(jobs.c.kind, jobs.c.state, jobs.c.lease_token, jobs.c.due_at)
    .where(jobs.c.due_at.is_not(None))
    .order_by(jobs.c.due_at)
    .limit(literal_column(str(MOST)))
    .offset(literal_column("0"))
    .subquery("first")
)
_STATE: Final = case(
    (
        (_FIRST.c.lease_token.is_not(None)) & (_FIRST.c.due_at > bindparam("now")),
        text("'running'"),
    ),
    (_FIRST.c.due_at > bindparam("now"), text("'waiting'")),
    else_=text("'due'"),
)
_UNFINISHED: Final = Statement(
    select(_FIRST.c.kind, _STATE.label("stage"), func.count(), func.min(_FIRST.c.due_at)).group_by(
        _FIRST.c.kind, text("stage")
    )
)
_CHORES: Final = Statement(select(schedules.c.name, schedules.c.ended_at, schedules.c.fault))


class JobFigure(NamedTuple):
    """The unfinished jobs of one kind and stage."""

    kind: str
    stage: str
    """*due*: it could run now; *running*: a worker has it; *waiting*: for its time."""
    jobs: int
    first_due_at: int


class ChoreFigure(NamedTuple):
    """A periodic chore: when its last turn ended, and whether it failed."""

    name: str
    ended_at: int | None
    is_failed: bool


def unfinished_jobs(tx: Connection, now: int) -> list[JobFigure]:
    """Count the unfinished jobs, at most `MOST`."""
    return [JobFigure(*row) for row in tx.rows(_UNFINISHED, now=now)]


def chores(tx: Connection) -> list[ChoreFigure]:
    """Return every chore that has had a turn; there are about ten."""
    return [ChoreFigure(row[0], row[1], row[2] is not None) for row in tx.rows(_CHORES)]
