"""The jobs of notifications: one for each subscription that has something to deliver."""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.jobs.queue import NewJob, enqueue

DELIVER: Final = "notifications.deliver"
RELEASE: Final = "notifications.release"


def wake(
    tx: Connection, account_id: str, subscription_id: str, now: int, due_at: int | None = None
) -> None:
    """Let the deliveries to a subscription be looked at now, or at `due_at` at the latest."""
    delay = 0.0 if due_at is None else max(0, due_at - now) / MICROSECONDS
    job = NewJob(
        DELIVER,
        {"subscription_id": subscription_id},
        account_id=account_id,
        dedup_key=subscription_id,
        delay_seconds=delay,
        hastens=True,
    )
    enqueue(tx, job, now)


def enqueue_release(tx: Connection, account_id: str, topic_id: str, now: int) -> None:
    """Let the events that wait for a topic be delivered."""
    job = NewJob(RELEASE, {"topic_id": topic_id}, account_id=account_id, dedup_key=topic_id)
    enqueue(tx, job, now)
