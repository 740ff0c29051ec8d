"""The rows of subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import count
from cloudcore.db.statement import Statement, page
from cloudcore.jobs.faults import Fault
from cloudcore.notifications.records import Protocol, encoded
from cloudcore.notifications.subscription import Subscription
from cloudcore.notifications.tables import SUBSCRIPTION_ROWS as ROWS
from cloudcore.notifications.topic import Topic
from cloudcore.notifications.topics import ROWS as TOPICS

_s = ROWS.table.c
_OF_TOPIC: Final = (
    _s.account_id == bindparam("account_id"),
    _s.topic_id == bindparam("topic_id"),
)
_IS_OURS: Final = (_s.id == bindparam("id"), _s.account_id == bindparam("account_id"))
_FIND_SAME: Final = Statement(
    ROWS.columns.where(
        *_OF_TOPIC, _s.protocol == bindparam("protocol"), _s.endpoint == bindparam("endpoint")
    )
)
_FIND_WITH_TOPIC: Final = Statement(
    TOPICS.columns.add_columns(*ROWS.columns.selected_columns)
    .join(ROWS.table, TOPICS.table.c.id == _s.topic_id)
    .where(*_IS_OURS)
)
_LOCK_CONFIRMED_BY: Final = Statement(
    ROWS.columns.where(_s.confirmation_hash == bindparam("confirmation_hash")).with_for_update()
)
_LIST: Final = Statement(
    page(ROWS.columns.where(*_OF_TOPIC, _s.id > bindparam("after")).order_by(_s.id))
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
_COUNT: Final = Statement(select(func.count()).select_from(ROWS.table).where(*_OF_TOPIC))
_SAVE_FAULTS: Final = Statement(
    ROWS.table.update().where(*_IS_OURS).values(faults=bindparam("faults"))
)


def find_same(
    tx: Connection, account_id: str, topic_id: str, protocol: Protocol, endpoint: str
) -> Subscription | None:
    """Return the subscription of a topic to an endpoint, or None."""
    row = tx.row(
        _FIND_SAME,
        account_id=account_id,
        topic_id=topic_id,
        protocol=protocol,
        endpoint=endpoint,
    )
    return None if row is None else ROWS.record_of(row)


def find_with_topic(
    tx: Connection, account_id: str, subscription_id: str
) -> tuple[Subscription, Topic] | None:
    """Return a subscription and its topic, or None."""
    row = tx.row(_FIND_WITH_TOPIC, account_id=account_id, id=subscription_id)
    if row is None:
        return None
    end = TOPICS.width
    return ROWS.record_of(row[end:]), TOPICS.record_of(row[:end])


def lock_confirmed_by(tx: Connection, token_hash: bytes) -> Subscription | None:
    """Return the subscription that a token confirms, or None; block changes of it."""
    row = tx.row(_LOCK_CONFIRMED_BY, confirmation_hash=token_hash)
    return None if row is None else ROWS.record_of(row)


def list_subscriptions(
    tx: Connection, account_id: str, topic_id: str, after: str, limit: int
) -> list[Subscription]:
    """Return subscriptions to a topic of an account, oldest first."""
    rows = tx.rows(_LIST, account_id=account_id, topic_id=topic_id, after=after, limit=limit)
    return [ROWS.record_of(row) for row in rows]


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


def save_faults(
    tx: Connection, account_id: str, subscription_id: str, faults: Sequence[Fault]
) -> None:
    """Store the faults of a subscription."""
    tx.execute(
        _SAVE_FAULTS, account_id=account_id, id=subscription_id, faults=encoded(list(faults))
    )


def remove_subscription(tx: Connection, account_id: str, subscription_id: str) -> bool:
    """Delete a subscription with its deliveries; return False if there is none."""
    remove = ROWS.statements["remove"]
    return tx.execute(remove, of_id=subscription_id, account_id=account_id) == 1
