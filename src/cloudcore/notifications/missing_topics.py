"""Queries of topics that something names though they do not exist, and of events told to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Table,
    Text,
    bindparam,
    delete,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import bound
from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata
from cloudcore.db.statement import Statement, listed, page, text_list
from cloudcore.jobs.outbox import OutboxEvent
from cloudcore.notifications.topic import encoded

WAITING_SECONDS: Final = 30 * 24 * 3600
"""Seconds after which an event is deleted that still waits for its topic."""
MAX_WAITING: Final = 10_000
"""Events that wait for one topic; the oldest are dropped."""

# A topic that something names though it does not exist: it was deleted, or never created.
missing_topics = Table(
    "missing_topics",
    metadata,
    Column("account_id", Id, ForeignKey("accounts.id"), primary_key=True),
    Column("crn", ByteOrdered, primary_key=True),
    Column("first_at", Moment, nullable=False),
    Column("last_at", Moment, nullable=False),
    Column("events", BigInteger, nullable=False),  # that were told to it meanwhile
    Index("ix_missing_topics_last_at", "last_at"),
)

# Events told to a topic that does not exist; delivered when it does.
waiting_events = Table(
    "waiting_events",
    metadata,
    Column("event_id", Id, primary_key=True),
    Column("crn", ByteOrdered, primary_key=True),  # of the topic
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column("type", ByteOrdered, nullable=False),
    Column("payload", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index("ix_waiting_events_topic", "account_id", "crn", "event_id"),
    Index("ix_waiting_events_created_at", "created_at"),
)


_m = missing_topics.c
_w = waiting_events.c


class MissingTopic(NamedTuple):
    """A topic that something names though it does not exist."""

    crn: str
    first_at: int
    last_at: int
    events: int
    """Events told to it since."""

    @property
    def dropped(self) -> int:
        """Return how many of these were dropped, because too many waited."""
        return max(0, self.events - MAX_WAITING)


_new_missing: Final = insert(missing_topics).values(
    **bound(("account_id", "crn", "events")),
    first_at=bindparam("now"),
    last_at=bindparam("now"),
)
_NOTE_MISSING: Final = Statement(
    _new_missing.on_conflict_do_update(
        index_elements=["account_id", "crn"],
        set_={"last_at": _new_missing.excluded.last_at, "events": _m.events + bindparam("events")},
    )
)
_OF_CRN: Final = (_m.account_id == bindparam("account_id"), _m.crn == bindparam("crn"))
_FORGET_MISSING: Final = Statement(delete(missing_topics).where(*_OF_CRN))
_LIST_MISSING: Final = Statement(
    select(_m.crn, _m.first_at, _m.last_at, _m.events).where(
        _m.account_id == bindparam("account_id"), _m.crn.in_(listed("crns"))
    )
)
_ADD_WAITING: Final = Statement(
    insert(waiting_events)
    .values(bound(("event_id", "crn", "account_id", "type", "payload", "created_at")))
    .on_conflict_do_nothing()
)
_WAIT_FOR: Final = (_w.account_id == bindparam("account_id"), _w.crn == bindparam("crn"))
_LIST_WAITING: Final = Statement(
    page(
        select(_w.event_id, _w.account_id, _w.type, _w.payload, _w.created_at)
        .where(*_WAIT_FOR)
        .order_by(_w.event_id)
    )
)
_REMOVE_WAITING: Final = Statement(
    delete(waiting_events).where(*_WAIT_FOR, _w.event_id.in_(listed("ids")))
)
_too_old: Final = (
    select(_w.event_id)
    .where(*_WAIT_FOR)
    .order_by(_w.event_id.desc())
    .limit(literal_column("1"))
    .offset(bindparam("most"))
    .scalar_subquery()
)
_DROP_OLDEST: Final = Statement(delete(waiting_events).where(*_WAIT_FOR, _w.event_id <= _too_old))
_FORGET_WAITING: Final = deletion(_w.created_at)
_FORGET_OLD_MISSING: Final = deletion(_m.last_at)


def note_missing(tx: Connection, account_id: str, crn: str, events: int, now: int) -> None:
    """Note that a topic does not exist, and that so many more events were told to it."""
    tx.execute(_NOTE_MISSING, account_id=account_id, crn=crn, events=events, now=now)


def forget_missing(tx: Connection, account_id: str, crn: str) -> None:
    """Note that a topic exists."""
    tx.execute(_FORGET_MISSING, account_id=account_id, crn=crn)


def list_missing(tx: Connection, account_id: str, crns: Sequence[str]) -> dict[str, MissingTopic]:
    """Return what is known of those of these topics that are noted as missing, by CRN."""
    rows = tx.rows(_LIST_MISSING, account_id=account_id, crns=text_list(crns))
    return {row[0]: MissingTopic(*row) for row in rows}


def add_waiting(tx: Connection, event: OutboxEvent, crn: str) -> bool:
    """Let an event wait for a topic; return False if it does already."""
    added = tx.execute(
        _ADD_WAITING,
        event_id=event.id,
        crn=crn,
        account_id=event.account_id,
        type=event.type,
        payload=encoded(event.payload),
        created_at=event.created_at,
    )
    return added == 1


def drop_oldest_waiting(tx: Connection, account_id: str, crn: str) -> None:
    """Delete the oldest events that wait for a topic, if there are more than `MAX_WAITING`."""
    tx.execute(_DROP_OLDEST, account_id=account_id, crn=crn, most=MAX_WAITING)


def list_waiting(tx: Connection, account_id: str, crn: str, limit: int) -> list[OutboxEvent]:
    """Return the events that wait for a topic, oldest first."""
    return [
        OutboxEvent(event_id, owner, kind, msgspec.json.decode(payload), created_at)
        for event_id, owner, kind, payload, created_at in tx.rows(
            _LIST_WAITING, account_id=account_id, crn=crn, limit=limit
        )
    ]


def remove_waiting(tx: Connection, account_id: str, crn: str, ids: Sequence[str]) -> None:
    """Let events no longer wait for a topic."""
    tx.execute(_REMOVE_WAITING, account_id=account_id, crn=crn, ids=text_list(ids))


def forget_waiting(tx: Connection, now: int) -> int:
    """Delete a batch of events that have waited for `WAITING_SECONDS`; return how many."""
    return tx.execute(_FORGET_WAITING, before=now - WAITING_SECONDS * MICROSECONDS)


def forget_old_missing(tx: Connection, now: int) -> int:
    """Delete a batch of notes of topics that nobody told anything for so long; return how many."""
    return tx.execute(_FORGET_OLD_MISSING, before=now - WAITING_SECONDS * MICROSECONDS)
