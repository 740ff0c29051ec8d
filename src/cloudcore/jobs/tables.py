"""The tables of jobs, of the schedule and of runs.

A job is *queued* until a worker first leases it, then *running* until it has *succeeded* or
*failed*. Between two attempts it stays running, without a lease, so a state never goes back.

``due_at`` is the time from which a worker may lease the job: the start, the next attempt, or the
end of the current lease. So due work is one range of one index, and a dead worker's job becomes due
without a cleanup; sooner if the worker is known to have died (`cloudcore.jobs.dead_holders`).

``wake_at`` is set if a job is woken during its lease: the time from which it shall run again. The
running step may have read its data before the change that caused the wake; so when the lease is
released, the job is due at ``wake_at`` or earlier.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from cloudcore.db.schema import ByteOrdered, Id, Moment, one_of, partial_index
from cloudcore.db.tables import columns, indexes, refers, table

UNFINISHED = sa.text("state IN ('queued', 'running')")
RUNNING = sa.text("state = 'running'")
NO_LEASE: Final = {"lease_token": sa.text("NULL"), "lease_holder": sa.text("NULL")}
"""Column values of a job or chore without a lease."""

jobs = table(
    "jobs",
    columns(ByteOrdered, "kind, dedup_key NULL"),
    refers("account_id NULL", "accounts"),  # null: the platform's own
    columns(ByteOrdered, "resource NULL"),
    columns(sa.String(16), "state"),
    columns(sa.Text, "arguments, cursor"),
    columns(sa.Integer, "attempts"),  # at the current step
    columns(Moment, "due_at NULL"),
    columns(Id, "lease_token NULL"),
    columns(Id, "lease_holder NULL"),  # the worker process; null if there is no lease
    columns(Moment, "wake_at NULL"),  # null if nothing woke it since its step began
    columns(sa.Text, "fault NULL"),
    columns(Moment, "created_at, updated_at, finished_at NULL"),
    one_of("state", "queued", "running", "succeeded", "failed"),
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
schedules = table(
    "schedules",
    columns(ByteOrdered, "name KEY"),
    columns(Moment, "due_at"),
    columns(Id, "lease_token NULL, lease_holder NULL"),
    columns(Moment, "ended_at NULL"),  # the last turn
    columns(sa.Text, "fault NULL"),  # of the last turn
)

runs = table(
    "runs",
    columns(ByteOrdered, "kind"),
    refers("account_id", "accounts"),
    # id of the resource it runs over, such as an account
    columns(Id, "scope_id"),
    columns(sa.String(16), "state"),
    columns(sa.Text, "arguments"),
    columns(sa.BigInteger, "done"),
    columns(sa.BigInteger, "total NULL"),  # null if unknown
    columns(sa.Text, "counts"),  # an object of numbers by name
    columns(sa.Text, "faults"),  # a list
    columns(sa.Text, "fault NULL"),  # why it failed: "CODE: message", or the code alone
    columns(sa.Text, "started_by"),  # CRN; empty if it was scheduled
    columns(sa.Text, "started_by_source NULL"),  # JSON: who is behind a role
    columns(Moment, "started_at, finished_at NULL"),
    one_of("state", "running", "succeeded", "failed"),
    sa.CheckConstraint("(state = 'running') = (finished_at IS NULL)", name="finished_at"),
    indexes("scope_id, kind, id"),
)
partial_index("uq_runs_running", runs.c.scope_id, runs.c.kind, unique=True, where=RUNNING)
