"""Events: recorded in the transaction of a change, delivered later, at least once and in order.

An event is in the outbox if and only if its change has committed. The events of an account are
delivered in the order of their commits, by one job at a time. So an event that cannot be delivered
delays later ones of its account, but not those of other accounts. Undelivered events are deleted
after `UNDELIVERED_SECONDS`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import sqlalchemy as sa

from cloudcore.clock import Clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import bound, deletion, forget_all, given, json_text
from cloudcore.db.schema import ByteOrdered, Id, Moment, partial_index
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.db.tables import RowNumber, columns, refers, table
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import Job, NewJob, enqueue

DELIVER: Final = "outbox.deliver"
BATCH: Final = 20
_SLOTS: Final = 4
"""Number of accounts to which a process delivers events at once."""
KEPT_SECONDS: Final = 7 * 24 * 3600
UNDELIVERED_SECONDS: Final = 30 * 24 * 3600
"""Seconds after which an undelivered event is deleted."""

_log = logging.getLogger(__name__)

outbox = table(
    "outbox",
    # SQLite assigns row numbers only to a column of type INTEGER.
    columns(RowNumber, "sequence KEY"),
    sa.Column("id", Id, nullable=False, unique=True),
    # The type is said, since accounts may not be known yet when the statements are made.
    refers("account_id", "accounts"),
    columns(ByteOrdered, "type"),
    columns(sa.Text, "payload"),
    columns(Moment, "created_at, delivered_at NULL"),
)
partial_index(
    "ix_outbox_pending",
    outbox.c.account_id,
    outbox.c.sequence,
    where=outbox.c.delivered_at.is_(None),
)
partial_index("ix_outbox_undelivered", outbox.c.created_at, where=outbox.c.delivered_at.is_(None))
partial_index(
    "ix_outbox_delivered", outbox.c.delivered_at, where=outbox.c.delivered_at.is_not(None)
)


class OutboxEvent(NamedTuple):
    """An event about an account's resources."""

    id: str
    """The same in every delivery."""
    account_id: str
    type: str
    payload: Any
    created_at: int


class Subscriber(Protocol):
    """A receiver of events."""

    async def receive(self, event: OutboxEvent) -> None:
        """Receive an event; if this raises an error, the event is delivered again.

        Even without an error, the event may be delivered again, with the same `id`, before later
        events of its account.
        """


_o = outbox.c
_ADD: Final = Statement(
    sa.insert(outbox)
    .values(
        **bound(("id", "account_id", "type", "payload")),
        created_at=sa.bindparam("now"),
    )
    .inline()
)
_PENDING: Final = paged(
    sa.select(_o.id, _o.account_id, _o.type, _o.payload, _o.created_at)
    .where(given(_o.account_id), _o.delivered_at.is_(None))
    .order_by(_o.sequence)
)
_MARK: Final = Statement(
    # A delivered event is kept for a while, without its payload.
    sa.update(outbox)
    .where(_o.id.in_(listed("ids")))
    .values(delivered_at=sa.bindparam("now"), payload=sa.literal_column("'null'"))
)
UNDELIVERED: Final = sa.select(_o.sequence).where(given(_o.account_id), _o.delivered_at.is_(None))
"""A query for the events of an account that are not delivered yet."""
forget_delivered: Final = deletion(_o.delivered_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the events delivered more than `KEPT_SECONDS` ago."""
_forget_undelivered: Final = deletion(
    _o.created_at, _o.delivered_at.is_(None), kept_seconds=UNDELIVERED_SECONDS
)


def emit(tx: Connection, event_type: str, account_id: str, payload: object, now: int) -> str:
    """Record an event in the transaction of its change and return its id; `payload` is JSON.

    Call this last in a transaction: until the transaction ends, others that emit events of the
    account wait.
    """
    return emit_all(tx, event_type, account_id, [payload], now)[0]


def emit_all(
    tx: Connection, event_type: str, account_id: str, payloads: Sequence[object], now: int
) -> list[str]:
    """Record events of one type, as `emit` does, and return their ids."""
    if not payloads:
        return []
    _enqueue_delivery(tx, account_id, now)  # first: its lock orders the events
    ids = [uuid7(now) for _ in payloads]
    for event_id, payload in zip(ids, payloads, strict=True):
        tx.execute(
            _ADD,
            id=event_id,
            account_id=account_id,
            type=event_type,
            payload=json_text(payload),
            now=now,
        )
    return ids


def delivery(database: Database, clock: Clock, subscribers: Sequence[Subscriber]) -> JobKind:
    """Return the kind of job that delivers an account's events to all `subscribers`.

    The job retries without limit. All processes that deliver events must have the same subscribers.
    """
    step = partial(_deliver, database, clock, subscribers)
    return JobKind(name=DELIVER, step=step, max_attempts=None, slots=_SLOTS)


async def forget_undelivered(database: Database, clock: Clock) -> int:
    """Delete events that were undelivered for `UNDELIVERED_SECONDS`; return the number deleted."""
    forgotten = await forget_all(database, _forget_undelivered, clock())
    if forgotten:
        _log.warning("deleted %d events that were not delivered in time", forgotten)
    return forgotten


async def _deliver(
    database: Database, clock: Clock, subscribers: Sequence[Subscriber], job: Job
) -> Next | Done:
    account_id = job.account_id
    assert account_id is not None
    events = await database.read(_pending, account_id, BATCH)
    delivered: list[str] = []
    for event in events:
        try:
            for subscriber in subscribers:
                await subscriber.receive(event)
        except Exception:
            if not delivered:
                raise
            break  # mark the events before it; the next step retries it
        delivered.append(event.id)
    now = clock()

    def mark(tx: Connection) -> None:
        tx.execute(_MARK, ids=text_list(delivered), now=now)

    def finish(tx: Connection) -> None:
        mark(tx)
        if _pending(tx, account_id, 1):  # emitted since they were read
            _enqueue_delivery(tx, account_id, now)

    if len(delivered) < len(events) or len(events) == BATCH:
        return Next(None, mark)
    return Done(finish)


def _enqueue_delivery(tx: Connection, account_id: str, now: int) -> None:
    enqueue(tx, NewJob(DELIVER, account_id=account_id, dedup_key=account_id), now)


def _pending(tx: Connection, account_id: str, limit: int) -> list[OutboxEvent]:
    rows = tx.rows(_PENDING, account_id=account_id, limit=limit)
    return [
        OutboxEvent(event_id, owner, event_type, msgspec.json.decode(payload), created_at)
        for event_id, owner, event_type, payload, created_at in rows
    ]
