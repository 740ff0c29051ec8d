"""The tables of jobs, of the schedule and of runs.

A job is *queued* until a worker first leases it, then *running* until it has *succeeded* or
*failed*. Between two attempts it stays running, without a lease, so a state never goes back.

``due_at`` is the time from which a worker may lease the job: the start, the next attempt, or the
end of the current lease. So due work is one range of one index, and a dead worker's job becomes due
without a cleanup; sooner if the worker is known to have died (`cloudcore.jobs.dead_holders`).

``wake_at`` is the time for which a job was woken during its lease. The running step may have looked
before what it was woken for; so when the lease is released, the job is due at ``wake_at`` or
earlier.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
)
from sqlalchemy import text as sql

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata, partial_index

UNFINISHED = sql("state IN ('queued', 'running')")
RUNNING = sql("state = 'running'")
NO_LEASE: Final = {"lease_token": sql("NULL"), "lease_holder": sql("NULL")}
"""Values of a job or chore that nobody leases."""

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
    Column("attempts", Integer, nullable=False),  # at the current step
    Column("due_at", Moment),
    Column("lease_token", Id),
    Column("lease_holder", Id),  # the worker process; null if there is no lease
    Column("wake_at", Moment),  # null if nothing woke it since its step began
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
partial_index("uq_jobs_unfinished", jobs.c.kind, jobs.c.dedup_key, unique=True, where=UNFINISHED)
partial_index("ix_jobs_due", jobs.c.due_at, where=jobs.c.due_at.is_not(None))
partial_index("ix_jobs_finished", jobs.c.finished_at, where=jobs.c.finished_at.is_not(None))
partial_index("ix_jobs_held", jobs.c.lease_holder, where=jobs.c.lease_holder.is_not(None))

# A chore is due at its next turn, or, during a turn, at the end of the lease.
schedules = Table(
    "schedules",
    metadata,
    Column("name", ByteOrdered, primary_key=True),
    Column("due_at", Moment, nullable=False),
    Column("lease_token", Id),
    Column("lease_holder", Id),
    Column("ended_at", Moment),  # the last turn
    Column("fault", Text),  # of the last turn
)

runs = Table(
    "runs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", ByteOrdered, nullable=False),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("scope_id", Id, nullable=False),  # id of the resource it runs over, such as an account
    Column("state", String(16), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger),  # null if unknown
    Column("counts", Text, nullable=False),  # an object of numbers by name
    Column("faults", Text, nullable=False),  # a list
    Column("fault", Text),  # why it failed: "CODE: message", or the code alone
    Column("started_by", Text, nullable=False),  # CRN; empty if it was scheduled
    Column("started_by_source", Text),  # JSON: who is behind a role
    Column("started_at", Moment, nullable=False),
    Column("finished_at", Moment),
    CheckConstraint("state IN ('running', 'succeeded', 'failed')", name="state"),
    CheckConstraint("(state = 'running') = (finished_at IS NULL)", name="finished_at"),
    Index(None, "scope_id", "kind", "id"),
)
partial_index("uq_runs_running", runs.c.scope_id, runs.c.kind, unique=True, where=RUNNING)
