"""Queries of subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, delete, func, literal_column, select, update

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import columns, count, insert_new
from cloudcore.db.statement import Statement, page
from cloudcore.jobs.faults import Fault
from cloudcore.notifications.records import Protocol, Subscription, encoded
from cloudcore.notifications.tables import subscriptions
from cloudcore.notifications.topic import Topic
from cloudcore.notifications.topics import ROWS as TOPICS

_s = subscriptions.c
_OF_TOPIC: Final = (
    _s.account_id == bindparam("account_id"),
    _s.topic_id == bindparam("topic_id"),
)
_IS_OURS: Final = (_s.id == bindparam("id"), _s.account_id == bindparam("account_id"))
_FAULTS: Final = msgspec.json.Decoder(list[Fault])
_JSON: Final = ("filter_policy", "delivery_policy", "faults")

_COLUMNS: Final = columns(subscriptions, Subscription._fields)
_ADD: Final = Statement(insert_new(subscriptions, Subscription._fields))
_FIND: Final = Statement(_COLUMNS.where(*_OF_TOPIC, _s.id == bindparam("id")))
_LOCK: Final = Statement(_COLUMNS.where(*_OF_TOPIC, _s.id == bindparam("id")).with_for_update())
_LOCK_OURS: Final = Statement(_COLUMNS.where(*_IS_OURS).with_for_update())
_FIND_SAME: Final = Statement(
    _COLUMNS.where(
        *_OF_TOPIC, _s.protocol == bindparam("protocol"), _s.endpoint == bindparam("endpoint")
    )
)
_FIND_WITH_TOPIC: Final = Statement(
    TOPICS.columns.add_columns(*(_s[name] for name in Subscription._fields))
    .join(subscriptions, TOPICS.table.c.id == _s.topic_id)
    .where(*_IS_OURS)
)
_LOCK_CONFIRMED_BY: Final = Statement(
    _COLUMNS.where(_s.confirmation_hash == bindparam("confirmation_hash")).with_for_update()
)
_LIST: Final = Statement(
    page(_COLUMNS.where(*_OF_TOPIC, _s.id > bindparam("after")).order_by(_s.id))
)
_LIST_ACTIVE: Final = Statement(
    page(
        select(_s.id, _s.filter_policy)
        .where(*_OF_TOPIC, _s.active_since <= bindparam("published_at"), _s.id > bindparam("after"))
        .order_by(_s.id)
    )
)
_IS_HEARD: Final = Statement(
    select(_s.id)
    .where(*_OF_TOPIC, _s.active_since.is_not(None))
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)
_COUNT: Final = Statement(select(func.count()).select_from(subscriptions).where(*_OF_TOPIC))
_SAVE: Final = Statement(
    update(subscriptions)
    .where(*_IS_OURS)
    .values(
        {
            name: bindparam(name)
            for name in Subscription._fields
            if name not in ("id", "topic_id", "account_id", "protocol", "endpoint", "created_at")
        }
    )
)
_SAVE_FAULTS: Final = Statement(
    update(subscriptions).where(*_IS_OURS).values(faults=bindparam("faults"))
)
_REMOVE: Final = Statement(delete(subscriptions).where(*_OF_TOPIC, _s.id == bindparam("id")))


def add_subscription(tx: Connection, subscription: Subscription) -> bool:
    """Insert a subscription; return False if the topic has one to this endpoint."""
    return tx.execute(_ADD, **_values(subscription)) == 1


def find_subscription(
    tx: Connection, account_id: str, topic_id: str, subscription_id: str
) -> Subscription | None:
    """Return a subscription to a topic of an account, or None."""
    row = tx.row(_FIND, account_id=account_id, topic_id=topic_id, id=subscription_id)
    return _subscription(row)


def lock_subscription(
    tx: Connection, account_id: str, topic_id: str, subscription_id: str
) -> Subscription | None:
    """Return a subscription, or None; block changes of it by others until `tx` ends."""
    row = tx.row(_LOCK, account_id=account_id, topic_id=topic_id, id=subscription_id)
    return _subscription(row)


def lock_own_subscription(
    tx: Connection, account_id: str, subscription_id: str
) -> Subscription | None:
    """Return a subscription of an account to any topic, or None; block changes of it."""
    return _subscription(tx.row(_LOCK_OURS, account_id=account_id, id=subscription_id))


def find_same(
    tx: Connection, account_id: str, topic_id: str, protocol: Protocol, endpoint: str
) -> Subscription | None:
    """Return the subscription of a topic to an endpoint, or None."""
    return _subscription(
        tx.row(
            _FIND_SAME,
            account_id=account_id,
            topic_id=topic_id,
            protocol=protocol,
            endpoint=endpoint,
        )
    )


def find_with_topic(
    tx: Connection, account_id: str, subscription_id: str
) -> tuple[Subscription, Topic] | None:
    """Return a subscription and its topic, or None."""
    row = tx.row(_FIND_WITH_TOPIC, account_id=account_id, id=subscription_id)
    if row is None:
        return None
    end = len(row) - len(Subscription._fields)
    found, topic = _subscription(row[end:]), TOPICS.record_of(row[:end])
    assert found is not None
    return found, topic


def lock_confirmed_by(tx: Connection, token_hash: bytes) -> Subscription | None:
    """Return the subscription that a token confirms, or None; block changes of it."""
    return _subscription(tx.row(_LOCK_CONFIRMED_BY, confirmation_hash=token_hash))


def list_subscriptions(
    tx: Connection, account_id: str, topic_id: str, after: str, limit: int
) -> list[Subscription]:
    """Return subscriptions to a topic of an account, oldest first."""
    rows = tx.rows(_LIST, account_id=account_id, topic_id=topic_id, after=after, limit=limit)
    return [found for row in rows if (found := _subscription(row))]


def list_active(
    tx: Connection, account_id: str, topic_id: str, published_at: int, after: str, limit: int
) -> list[tuple[str, dict[str, list[str]]]]:
    """Return ids and filters of subscriptions that were active then, after the id `after`."""
    rows = tx.rows(
        _LIST_ACTIVE,
        account_id=account_id,
        topic_id=topic_id,
        published_at=published_at,
        after=after,
        limit=limit,
    )
    return [(row[0], msgspec.json.decode(row[1])) for row in rows]


def is_heard(tx: Connection, account_id: str, topic_id: str) -> bool:
    """Return True if a topic has an active subscription."""
    return tx.row(_IS_HEARD, account_id=account_id, topic_id=topic_id) is not None


def count_subscriptions(tx: Connection, account_id: str, topic_id: str) -> int:
    """Count the subscriptions to a topic of an account."""
    return count(tx, _COUNT, account_id=account_id, topic_id=topic_id)


def save_subscription(tx: Connection, subscription: Subscription) -> None:
    """Store the fields of a subscription that can change."""
    values = _values(subscription)
    for name in ("topic_id", "protocol", "endpoint", "created_at"):
        del values[name]
    tx.execute(_SAVE, **values)


def save_faults(
    tx: Connection, account_id: str, subscription_id: str, faults: Sequence[Fault]
) -> None:
    """Store the faults of a subscription."""
    tx.execute(
        _SAVE_FAULTS, account_id=account_id, id=subscription_id, faults=encoded(list(faults))
    )


def remove_subscription(
    tx: Connection, account_id: str, topic_id: str, subscription_id: str
) -> bool:
    """Delete a subscription with its deliveries; return False if there is none."""
    removed = tx.execute(_REMOVE, account_id=account_id, topic_id=topic_id, id=subscription_id)
    return removed == 1


def _values(subscription: Subscription) -> dict[str, Any]:
    values = subscription._asdict()
    return values | {name: encoded(values[name]) for name in _JSON}


def _subscription(row: Row | None) -> Subscription | None:
    if row is None:
        return None
    found = dict(zip(Subscription._fields, row, strict=True))
    decoded = {name: msgspec.json.decode(found[name]) for name in _JSON}
    decoded["faults"] = _FAULTS.decode(found["faults"])
    decoded["raw_message_delivery"] = bool(found["raw_message_delivery"])
    return Subscription(**{**found, **decoded})
