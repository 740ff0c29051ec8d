"""The table of jobs.

A job is *queued* until a worker first takes it, *running* until it has *succeeded* or *failed*.
Between two attempts it stays running, held by nobody, so a state never goes back.

``due_at`` says from when a worker may take the job: the moment to begin or to try again, or the
end of the lease it is under. So due work is one range of one index, and a dead worker's job
becomes due by itself.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, String, Table, Text
from sqlalchemy import text as sql

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata

UNFINISHED = sql("state IN ('queued', 'running')")

jobs = Table(
    "jobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", ByteOrdered, nullable=False),
    Column("dedup_key", ByteOrdered),
    Column("account_id", ForeignKey("accounts.id")),  # null: the platform's own
    Column("resource", ByteOrdered),
    Column("state", String(16), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("cursor", Text, nullable=False),
    Column("attempts", Integer, nullable=False),  # at the step under way
    Column("due_at", Moment),
    Column("lease_token", Id),
    Column("fault", Text),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("finished_at", Moment),
    CheckConstraint("state IN ('queued', 'running', 'succeeded', 'failed')", name="state"),
    CheckConstraint("(state IN ('queued', 'running')) = (due_at IS NOT NULL)", name="due_at"),
    CheckConstraint("(due_at IS NULL) = (finished_at IS NOT NULL)", name="finished_at"),
    CheckConstraint("lease_token IS NULL OR state = 'running'", name="lease_token"),
    CheckConstraint("state <> 'failed' OR fault IS NOT NULL", name="fault"),
)
Index(
    "uq_jobs_unfinished",
    jobs.c.kind,
    jobs.c.dedup_key,
    unique=True,
    sqlite_where=UNFINISHED,
    postgresql_where=UNFINISHED,
)
Index(
    "ix_jobs_due",
    jobs.c.due_at,
    sqlite_where=jobs.c.due_at.is_not(None),
    postgresql_where=jobs.c.due_at.is_not(None),
)
Index(
    "ix_jobs_finished",
    jobs.c.finished_at,
    sqlite_where=jobs.c.finished_at.is_not(None),
    postgresql_where=jobs.c.finished_at.is_not(None),
)
