"""Publications, their deliveries to endpoints, and the jobs that deliver."""

from __future__ import annotations

from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ONE, ZERO, bound, deletion, given, insert_new, json_text, total
from cloudcore.db.schema import Moment
from cloudcore.db.statement import Statement, page, paged
from cloudcore.db.tables import columns, indexes, named_index, refers, table
from cloudcore.jobs.queue import NewJob, enqueue
from cloudcore.notifications.subscriptions import SUBSCRIPTION_ROWS
from cloudcore.notifications.topic import (
    WAITING_BYTES,
    WAITING_DELIVERIES,
    PendingDelivery,
    Publication,
)
from cloudcore.quotas.limits import Counted, count_up_to_limit, rows_up_to_limit

KEPT_SECONDS: Final = 3600
"""How long a publication without deliveries is kept."""
DROPPED_AT_ONCE: Final = 500
"""How many rows of a deleted topic one transaction deletes at most."""

publications = table(
    "publications",
    refers("topic_id", "topics", "CASCADE"),
    refers("account_id", "accounts"),
    columns(sa.Text, "subject NULL, message"),
    columns(sa.Text, "attributes"),  # a JSON object
    columns(Moment, "published_at"),
    columns(Moment, "ended_at NULL"),  # when its deliveries had been inserted
    columns(sa.Text, "content_type NULL"),
    indexes("topic_id", "ended_at"),
)

# A row is deleted when the endpoint has the message, or the last attempt has failed.
deliveries = table(
    "deliveries",
    refers("account_id", "accounts"),
    refers("subscription_id", "subscriptions", "CASCADE"),
    # null: a request to confirm the subscription
    refers("publication_id NULL", "publications", "CASCADE"),
    # the message's bytes
    columns(sa.Integer, "size DEFAULT 0, attempts"),
    columns(Moment, "due_at, created_at"),
    sa.UniqueConstraint("publication_id", "subscription_id"),
    named_index("due", "subscription_id, due_at, size"),
)


_d = deliveries.c
_s = SUBSCRIPTION_ROWS.table.c
_p = publications.c
_IS_OURS: Final = given(_d.id, _d.account_id)
_OF_SUBSCRIPTION: Final = given(_d.account_id, _d.subscription_id)


_ADD_PUBLICATION: Final = Statement(insert_new(publications, Publication._fields))
_IS_ENDED: Final = Statement(sa.select(_p.ended_at).where(given(_p.id, _p.account_id)))
_END: Final = Statement(
    sa.update(publications).where(given(_p.id, _p.account_id)).values(ended_at=sa.bindparam("now"))
)
_ADD: Final = Statement(
    insert(deliveries)
    .values(
        **bound(("id", "account_id", "subscription_id", "publication_id", "size")),
        attempts=ZERO,
        due_at=sa.bindparam("now"),
        created_at=sa.bindparam("now"),
    )
    .on_conflict_do_nothing()
)
_WITH_PUBLICATION: Final = sa.select(
    *(_d.id, _d.subscription_id, _d.account_id, _d.attempts, _d.created_at),
    *(_p[name] for name in Publication._fields),
).outerjoin_from(deliveries, publications, _p.id == _d.publication_id)
_LIST_DUE: Final = paged(
    _WITH_PUBLICATION.where(_OF_SUBSCRIPTION, _d.due_at <= sa.bindparam("now")).order_by(
        _d.due_at, _d.id
    )
)
_oldest: Final = page(sa.select(_d.id).where(_OF_SUBSCRIPTION).order_by(_d.id)).scalar_subquery()
_LIST_OLDEST: Final = Statement(_WITH_PUBLICATION.where(_OF_SUBSCRIPTION, _d.id.in_(_oldest)))
_FIRST_DUE: Final = Statement(sa.select(sa.func.min(_d.due_at)).where(_OF_SUBSCRIPTION))


_some_of_it: Final = page(sa.select(_d.size).where(_OF_SUBSCRIPTION)).subquery()
_BACKLOG: Final = Statement(sa.select(sa.func.count(), total(_some_of_it.c.size)))
_of_account: Final = (
    sa.select(_d.size)
    .join_from(SUBSCRIPTION_ROWS.table, deliveries, _d.subscription_id == _s.id)
    .where(given(_s.account_id))
)
WAITING: Final = Counted(WAITING_DELIVERIES, count_up_to_limit(WAITING_DELIVERIES, _of_account))
"""Counts the deliveries that wait for all subscriptions of an account."""
_counted: Final = rows_up_to_limit(WAITING_DELIVERIES, _of_account)
WAITING_SIZE: Final = Counted(WAITING_BYTES, sa.select(sa.func.sum(_counted.c.size)))
"""Counts the bytes of the messages of these deliveries; reads no more deliveries than may wait."""
_POSTPONE: Final = Statement(
    sa.update(deliveries)
    .where(_IS_OURS)
    .values(attempts=sa.bindparam("attempts"), due_at=sa.bindparam("due_at"))
)
_REMOVE: Final = Statement(sa.delete(deliveries).where(_IS_OURS))
_REMOVE_REQUESTS: Final = Statement(
    sa.delete(deliveries).where(_OF_SUBSCRIPTION, _d.publication_id.is_(None))
)
_some = deliveries.alias("some")
_DROP_DELIVERIES: Final = Statement(
    sa.delete(deliveries).where(
        given(_d.account_id),
        _d.id.in_(
            page(
                sa.select(_some.c.id)
                .join_from(SUBSCRIPTION_ROWS.table, _some, _some.c.subscription_id == _s.id)
                .where(given(_s.topic_id, _s.account_id))
            )
        ),
    )
)
_others = publications.alias("others")
_DROP_PUBLICATIONS: Final = Statement(
    sa.delete(publications).where(
        given(_p.account_id),
        _p.id.in_(page(sa.select(_others.c.id).where(given(_others.c.topic_id)))),
    )
)
forget_publications: Final = deletion(
    _p.ended_at,
    ~sa.exists(
        sa.select(ONE)
        .select_from(deliveries)
        .where(_d.publication_id == _p.id)
        .correlate(publications)
    ),
    kept_seconds=KEPT_SECONDS,
)
"""Deletes a batch of publications without deliveries that ended over an hour ago."""


def add_publication(tx: Connection, publication: Publication) -> bool:
    """Insert a publication if it is new; return False if all its deliveries exist already."""
    values = publication._asdict() | {"attributes": json_text(publication.attributes)}
    if tx.execute(_ADD_PUBLICATION, **values):
        return True
    row = tx.row(_IS_ENDED, id=publication.id, account_id=publication.account_id)
    return row is not None and row[0] is None


def end_publication(tx: Connection, account_id: str, publication_id: str, now: int) -> None:
    """Store that all deliveries of a publication have been inserted."""
    tx.execute(_END, account_id=account_id, id=publication_id, now=now)


def add_delivery(
    tx: Connection,
    account_id: str,
    subscription_id: str,
    publication_id: str | None,
    now: int,
    *,
    size: int = 0,
) -> None:
    """Insert a delivery of a message of `size` bytes, due now, unless the delivery exists.

    If `publication_id` is None, the delivery is a request to confirm the subscription.
    """
    tx.execute(
        _ADD,
        id=uuid7(now),
        account_id=account_id,
        subscription_id=subscription_id,
        publication_id=publication_id,
        size=size,
        now=now,
    )


def list_due(
    tx: Connection, account_id: str, subscription_id: str, now: int, limit: int
) -> list[PendingDelivery]:
    """Return up to `limit` due deliveries to a subscription, earliest due time first."""
    rows = tx.rows(
        _LIST_DUE, account_id=account_id, subscription_id=subscription_id, now=now, limit=limit
    )
    return [_delivery(row) for row in rows]


def list_oldest(
    tx: Connection, account_id: str, subscription_id: str, limit: int
) -> list[PendingDelivery]:
    """Return the `limit` oldest deliveries to a subscription, due or not."""
    rows = tx.rows(
        _LIST_OLDEST, account_id=account_id, subscription_id=subscription_id, limit=limit
    )
    return [_delivery(row) for row in rows]


def first_due(tx: Connection, account_id: str, subscription_id: str) -> int | None:
    """Return when the next delivery to a subscription is due, or None if there is none."""
    row = tx.row(_FIRST_DUE, account_id=account_id, subscription_id=subscription_id)
    return row[0] if row else None


def backlog(tx: Connection, account_id: str, subscription_id: str, most: int) -> tuple[int, int]:
    """Return (number, bytes of messages) of a subscription's deliveries; count at most `most`."""
    row = tx.row(_BACKLOG, account_id=account_id, subscription_id=subscription_id, limit=most)
    return (int(row[0]), int(row[1])) if row else (0, 0)


def postpone(tx: Connection, delivery: PendingDelivery, attempts: int, due_at: int) -> None:
    """Store the number of attempts of a delivery, and when the next attempt is due."""
    tx.execute(
        _POSTPONE,
        id=delivery.id,
        account_id=delivery.account_id,
        attempts=attempts,
        due_at=due_at,
    )


def remove_delivery(tx: Connection, delivery: PendingDelivery) -> bool:
    """Delete a delivery; return False if it is already gone."""
    return tx.execute(_REMOVE, id=delivery.id, account_id=delivery.account_id) == 1


def remove_requests(tx: Connection, account_id: str, subscription_id: str) -> None:
    """Delete the deliveries that ask to confirm a subscription."""
    tx.execute(_REMOVE_REQUESTS, account_id=account_id, subscription_id=subscription_id)


def drop_deliveries(tx: Connection, account_id: str, topic_id: str) -> bool:
    """Delete a batch of deliveries to a topic's subscribers; return True if more may be left."""
    ids = {"account_id": account_id, "topic_id": topic_id}
    return tx.execute(_DROP_DELIVERIES, **ids, limit=DROPPED_AT_ONCE) == DROPPED_AT_ONCE


def drop_publications(tx: Connection, account_id: str, topic_id: str) -> bool:
    """Delete a batch of a topic's messages and deliveries; return True if more may be left."""
    ids = {"account_id": account_id, "topic_id": topic_id}
    return tx.execute(_DROP_PUBLICATIONS, **ids, limit=DROPPED_AT_ONCE) == DROPPED_AT_ONCE


def _delivery(row: Row) -> PendingDelivery:
    publication = None
    if row[5] is not None:
        found = dict(zip(Publication._fields, row[5:], strict=True))
        found["attributes"] = msgspec.json.decode(found["attributes"])
        publication = Publication(**found)
    delivery_id, subscription_id, account_id, attempts, created_at = row[:5]
    return PendingDelivery(
        delivery_id, subscription_id, account_id, attempts, created_at, publication
    )


DELIVER: Final = "notifications.deliver"
RELEASE: Final = "notifications.release"


def wake(
    tx: Connection, account_id: str, subscription_id: str, now: int, due_at: int | None = None
) -> None:
    """Schedule the job for a subscription's deliveries: now, or at `due_at` at the latest."""
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
    """Enqueue the job that delivers the events waiting for a topic."""
    job = NewJob(RELEASE, {"topic_id": topic_id}, account_id=account_id, dedup_key=topic_id)
    enqueue(tx, job, now)
