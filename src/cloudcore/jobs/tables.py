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

import sqlalchemy as sa

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata, partial_index

UNFINISHED = sa.text("state IN ('queued', 'running')")
RUNNING = sa.text("state = 'running'")
NO_LEASE: Final = {"lease_token": sa.text("NULL"), "lease_holder": sa.text("NULL")}
"""Values of a job or chore that nobody leases."""

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("kind", ByteOrdered, nullable=False),
    sa.Column("dedup_key", ByteOrdered),
    sa.Column("account_id", sa.ForeignKey("accounts.id")),  # null: the platform's own
    sa.Column("resource", ByteOrdered),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("cursor", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),  # at the current step
    sa.Column("due_at", Moment),
    sa.Column("lease_token", Id),
    sa.Column("lease_holder", Id),  # the worker process; null if there is no lease
    sa.Column("wake_at", Moment),  # null if nothing woke it since its step began
    sa.Column("fault", sa.Text),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("updated_at", Moment, nullable=False),
    sa.Column("finished_at", Moment),
    sa.CheckConstraint("state IN ('queued', 'running', 'succeeded', 'failed')", name="state"),
    sa.CheckConstraint("(state IN ('queued', 'running')) = (due_at IS NOT NULL)", name="due_at"),
    sa.CheckConstraint("(due_at IS NULL) = (finished_at IS NOT NULL)", name="finished_at"),
    sa.CheckConstraint("lease_token IS NULL OR state = 'running'", name="lease_token"),
    sa.CheckConstraint("state <> 'failed' OR fault IS NOT NULL", name="fault"),
)
partial_index("uq_jobs_unfinished", jobs.c.kind, jobs.c.dedup_key, unique=True, where=UNFINISHED)
partial_index("ix_jobs_due", jobs.c.due_at, where=jobs.c.due_at.is_not(None))
partial_index("ix_jobs_finished", jobs.c.finished_at, where=jobs.c.finished_at.is_not(None))
partial_index("ix_jobs_held", jobs.c.lease_holder, where=jobs.c.lease_holder.is_not(None))

# A chore is due at its next turn, or, during a turn, at the end of the lease.
schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("name", ByteOrdered, primary_key=True),
    sa.Column("due_at", Moment, nullable=False),
    sa.Column("lease_token", Id),
    sa.Column("lease_holder", Id),
    sa.Column("ended_at", Moment),  # the last turn
    sa.Column("fault", sa.Text),  # of the last turn
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("kind", ByteOrdered, nullable=False),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False),
    # id of the resource it runs over, such as an account
    sa.Column("scope_id", Id, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("done", sa.BigInteger, nullable=False),
    sa.Column("total", sa.BigInteger),  # null if unknown
    sa.Column("counts", sa.Text, nullable=False),  # an object of numbers by name
    sa.Column("faults", sa.Text, nullable=False),  # a list
    sa.Column("fault", sa.Text),  # why it failed: "CODE: message", or the code alone
    sa.Column("started_by", sa.Text, nullable=False),  # CRN; empty if it was scheduled
    sa.Column("started_by_source", sa.Text),  # JSON: who is behind a role
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("finished_at", Moment),
    sa.CheckConstraint("state IN ('running', 'succeeded', 'failed')", name="state"),
    sa.CheckConstraint("(state = 'running') = (finished_at IS NULL)", name="finished_at"),
    sa.Index(None, "scope_id", "kind", "id"),
)
partial_index("uq_runs_running", runs.c.scope_id, runs.c.kind, unique=True, where=RUNNING)
