"""Metrics of jobs and chores: unfinished jobs by kind and stage, and the chores' last turns."""

from __future__ import annotations

from typing import Final, NamedTuple

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO
from cloudcore.db.statement import Statement
from cloudcore.jobs.tables import jobs, schedules

MAX_COUNTED_JOBS: Final = 1000
"""Maximum number of unfinished jobs that are counted, beginning with those due first."""

_FIRST: Final = (
    sa.select(jobs.c.kind, jobs.c.state, jobs.c.lease_token, jobs.c.due_at)
    .where(jobs.c.due_at.is_not(None))
    .order_by(jobs.c.due_at)
    .limit(sa.literal_column(str(MAX_COUNTED_JOBS)))
    .offset(ZERO)
    .subquery("first")
)
_STATE: Final = sa.case(
    (
        (_FIRST.c.lease_token.is_not(None)) & (_FIRST.c.due_at > sa.bindparam("now")),
        sa.text("'running'"),
    ),
    (_FIRST.c.due_at > sa.bindparam("now"), sa.text("'waiting'")),
    else_=sa.text("'due'"),
)
_UNFINISHED: Final = Statement(
    sa.select(
        _FIRST.c.kind, _STATE.label("stage"), sa.func.count(), sa.func.min(_FIRST.c.due_at)
    ).group_by(_FIRST.c.kind, sa.text("stage"))
)
_CHORES: Final = Statement(sa.select(schedules.c.name, schedules.c.ended_at, schedules.c.fault))


class UnfinishedJobs(NamedTuple):
    """The unfinished jobs of one kind and stage."""

    kind: str
    stage: str
    """*due*: the job could run now; *running*: a worker has leased it; *waiting*: it is not due."""
    jobs: int
    first_due_at: int


class ChoreStatus(NamedTuple):
    """When a chore's last turn ended, and whether it failed."""

    name: str
    ended_at: int | None
    is_failed: bool


def unfinished_jobs(tx: Connection, now: int) -> list[UnfinishedJobs]:
    """Count unfinished jobs by kind and stage, at most `MAX_COUNTED_JOBS` in all."""
    return [UnfinishedJobs(*row) for row in tx.rows(_UNFINISHED, now=now)]


def chores(tx: Connection) -> list[ChoreStatus]:
    """Return the status of every chore that has had a turn; there are about ten."""
    return [ChoreStatus(row[0], row[1], row[2] is not None) for row in tx.rows(_CHORES)]
