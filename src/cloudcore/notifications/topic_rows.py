"""Queries of topics, and of events told to topics that do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import (
    bindparam,
    delete,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, Row
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import bound, columns, count, insert_new
from cloudcore.db.statement import Statement, listed, page, text_list
from cloudcore.jobs.outbox import OutboxEvent
from cloudcore.notifications.records import Topic, encoded
from cloudcore.notifications.tables import missing_topics, topics, waiting_events

WAITING_SECONDS: Final = 30 * 24 * 3600
"""Seconds after which an event is deleted that still waits for its topic."""
MAX_WAITING: Final = 10_000
"""Events that wait for one topic; the oldest are dropped."""
_t = topics.c
_m = missing_topics.c
_w = waiting_events.c
_OF_ACCOUNT: Final = _t.account_id == bindparam("account_id")
_IS_TOPIC: Final = (_t.id == bindparam("id"), _OF_ACCOUNT)
_IN_REGION: Final = (_OF_ACCOUNT, _t.region == bindparam("region"))


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


_COLUMNS: Final = columns(topics, Topic._fields)
_ADD: Final = Statement(insert_new(topics, Topic._fields))
_FIND: Final = Statement(_COLUMNS.where(*_IS_TOPIC))
_LOCK: Final = Statement(_COLUMNS.where(*_IS_TOPIC).with_for_update())
_HOLD: Final = Statement(select(_t.id).where(*_IS_TOPIC).with_for_update(read=True))
_FIND_NAMED: Final = Statement(_COLUMNS.where(*_IN_REGION, _t.name == bindparam("name")))
_IDS_NAMED: Final = Statement(
    select(_t.name, _t.id).where(*_IN_REGION, _t.name.in_(listed("names")))
)
_LIST: Final = Statement(
    page(_COLUMNS.where(*_IN_REGION, _t.id > bindparam("after")).order_by(_t.id))
)
_COUNT: Final = Statement(select(func.count()).select_from(topics).where(*_IN_REGION))
_SAVE: Final = Statement(
    update(topics)
    .where(*_IS_TOPIC)
    .values(bound(("description", "tags", "delivery_policy", "updated_at")))
)
_REMOVE: Final = Statement(delete(topics).where(*_IS_TOPIC))

_new_missing: Final = insert(missing_topics).values(
    account_id=bindparam("account_id"),
    crn=bindparam("crn"),
    first_at=bindparam("now"),
    last_at=bindparam("now"),
    events=bindparam("events"),
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
    .values(
        event_id=bindparam("event_id"),
        crn=bindparam("crn"),
        account_id=bindparam("account_id"),
        type=bindparam("type"),
        payload=bindparam("payload"),
        created_at=bindparam("created_at"),
    )
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


def add_topic(tx: Connection, topic: Topic) -> bool:
    """Insert a topic; return False if its name is taken."""
    values = topic._asdict() | {
        "tags": encoded(topic.tags),
        "delivery_policy": encoded(topic.delivery_policy),
    }
    return tx.execute(_ADD, **values) == 1


def find_topic(tx: Connection, account_id: str, topic_id: str) -> Topic | None:
    """Return a topic of an account, or None."""
    return _topic(tx.row(_FIND, account_id=account_id, id=topic_id))


def lock_topic(tx: Connection, account_id: str, topic_id: str) -> Topic | None:
    """Return a topic of an account, or None; block changes of it by others until `tx` ends."""
    return _topic(tx.row(_LOCK, account_id=account_id, id=topic_id))


def hold_topic(tx: Connection, account_id: str, topic_id: str) -> bool:
    """Return True if an account has a topic; it stays so until `tx` ends."""
    return tx.row(_HOLD, account_id=account_id, id=topic_id) is not None


def find_topic_named(tx: Connection, account_id: str, region: str, name: str) -> Topic | None:
    """Return the topic of a name, or None."""
    return _topic(tx.row(_FIND_NAMED, account_id=account_id, region=region, name=name))


def ids_of_topics(
    tx: Connection, account_id: str, region: str, names: Sequence[str]
) -> dict[str, str]:
    """Return the ids of those of these topics that exist, by name."""
    rows = tx.rows(_IDS_NAMED, account_id=account_id, region=region, names=text_list(names))
    return {row[0]: row[1] for row in rows}


def list_topics(
    tx: Connection, account_id: str, region: str, after: str, limit: int
) -> list[Topic]:
    """Return topics of an account, oldest first."""
    rows = tx.rows(_LIST, account_id=account_id, region=region, after=after, limit=limit)
    return [topic_of(row) for row in rows]


def count_topics(tx: Connection, account_id: str, region: str) -> int:
    """Count the topics of an account."""
    return count(tx, _COUNT, account_id=account_id, region=region)


def save_topic(tx: Connection, topic: Topic) -> None:
    """Store the fields of a topic that can change."""
    tx.execute(
        _SAVE,
        id=topic.id,
        account_id=topic.account_id,
        description=topic.description,
        tags=encoded(topic.tags),
        delivery_policy=encoded(topic.delivery_policy),
        updated_at=topic.updated_at,
    )


def remove_topic(tx: Connection, account_id: str, topic_id: str) -> bool:
    """Delete a topic with its subscriptions and deliveries; return False if there is none."""
    return tx.execute(_REMOVE, account_id=account_id, id=topic_id) == 1


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


def topic_of(row: Row) -> Topic:
    """Return the topic of a row of its columns."""
    return Topic(*row)._replace(
        tags=msgspec.json.decode(row[5]), delivery_policy=msgspec.json.decode(row[6])
    )


def _topic(row: Row | None) -> Topic | None:
    return None if row is None else topic_of(row)
