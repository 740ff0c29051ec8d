"""The table of messages, and its queries. Each query is about one queue of an account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
import sqlalchemy as sa

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ONE, bound, columns_of, given, json_text, total
from cloudcore.db.schema import Id, Moment, metadata, partial_index
from cloudcore.db.statement import Statement, listed, page, paged, text_list, unindexed
from cloudcore.queue.queue import Queue

IS_VISIBLE: Final = sa.text("hidden_until IS NULL")
IS_HIDDEN: Final = sa.text("hidden_until IS NOT NULL")

# A message is visible, or hidden until a moment: the end of its delay or of its lease.
queue_messages = sa.Table(
    "queue_messages",
    metadata,
    # Never reused, not even by SQLite: purges rely on that.
    sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("id", Id, nullable=False),
    sa.Column("queue_id", Id, nullable=False),
    sa.Column("account_id", Id, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),  # of body and attributes, in bytes
    sa.Column("queued_at", Moment, nullable=False),
    sa.Column("hidden_until", Moment),
    sa.Column("lease_token", sa.String(22)),
    sa.Column("lease_count", sa.Integer, nullable=False),
    sa.Column("sent_at", Moment, nullable=False),  # earlier than queued_at for a dead letter
    sa.Column("attributes", sa.Text, nullable=False),  # a JSON object
    sa.Column("body", sa.LargeBinary, nullable=False),  # UTF-8
    sa.ForeignKeyConstraint(
        ["queue_id", "account_id"],
        ["queues.id", "queues.account_id"],
        name="fk_queue_messages_queue",
    ),
    sa.CheckConstraint("lease_count >= 0", name="lease_count"),
    sa.CheckConstraint("lease_token IS NULL OR hidden_until IS NOT NULL", name="lease_token"),
    sa.Index("uq_queue_messages_id", "id", unique=True),
    sa.Index("ix_queue_messages_all", "queue_id", "position", "size"),
    partial_index("ix_queue_messages_visible", "queue_id", "position", where=IS_VISIBLE),
    partial_index(
        "ix_queue_messages_hidden", "queue_id", "hidden_until", "position", where=IS_HIDDEN
    ),
    sqlite_autoincrement=True,
)


_m = queue_messages.c


class Message(NamedTuple):
    """A message in a queue."""

    position: int
    """The place in the order of arrival; 0 before the message is inserted."""
    id: str
    size: int
    """Size of body and attributes, in bytes."""
    queued_at: int
    """When the message entered this queue, in microseconds since the epoch; its retention begins
    then."""
    hidden_until: int | None
    """The end of the message's delay or lease; None if it can be leased."""
    lease_token: str | None
    lease_count: int
    sent_at: int
    attributes: Mapping[str, str]
    body: bytes


class Depth(NamedTuple):
    """How many messages a queue holds."""

    visible: int
    leased: int
    delayed: int
    oldest_at: int | None
    """When the oldest message entered the queue, in microseconds since the epoch; None if the queue
    is empty."""


_COLUMNS: Final = columns_of(queue_messages, Message._fields)
_IN_QUEUE: Final = given(_m.queue_id, _m.account_id)
_LISTED: Final = (
    unindexed(_m.queue_id) == sa.bindparam("queue_id"),
    given(_m.account_id),
    _m.id.in_(listed("ids")),
)
_NOT_PURGED: Final = _m.position > sa.bindparam("purged_through")
_VISIBLE: Final = (_IN_QUEUE, IS_VISIBLE, _NOT_PURGED)
_NEW: Final = tuple(name for name in Message._fields if name != "position")
_ADD: Final = Statement(
    queue_messages.insert()
    .inline()  # else the driver would ask for the position
    .values(bound((*_NEW, "queue_id", "account_id")))
)
_OLDEST_VISIBLE: Final = (
    sa.select(_m.id, _m.size)
    .where(*_VISIBLE, _m.queued_at > sa.bindparam("kept_from"))
    .order_by(_m.position)
)
_LOCK_OLDEST: Final = paged(_OLDEST_VISIBLE.with_for_update(skip_locked=True))
_FIRST_VISIBLE: Final = paged(_OLDEST_VISIBLE)
_FIRST_HIDDEN: Final = Statement(
    sa.select(sa.func.min(_m.hidden_until)).where(_IN_QUEUE, IS_HIDDEN)
)
_LEASE: Final = Statement(
    sa.update(queue_messages)
    .where(*_LISTED)
    .values(
        hidden_until=sa.bindparam("lease_end"),
        lease_token=sa.bindparam("token"),
        lease_count=_m.lease_count + ONE,
    )
)
_FIND_ALL: Final = Statement(_COLUMNS.where(*_LISTED).order_by(_m.position))
_LOCK_LEASES: Final = Statement(
    sa.select(_m.id, _m.lease_token, _m.hidden_until)
    .where(*_LISTED, _NOT_PURGED)
    .order_by(_m.position)
    .with_for_update()
)
_LOCK_DUE: Final = paged(
    _COLUMNS.where(_IN_QUEUE, IS_HIDDEN, _m.hidden_until <= sa.bindparam("now"))
    .order_by(_m.hidden_until, _m.position)
    .with_for_update(skip_locked=True)
)
_SHOW: Final = Statement(
    sa.update(queue_messages)
    .where(*_LISTED)
    .values(hidden_until=sa.text("NULL"), lease_token=sa.text("NULL"))
)
_HIDE: Final = Statement(
    sa.update(queue_messages).where(*_LISTED).values(hidden_until=sa.bindparam("lease_end"))
)
_DELETE: Final = Statement(sa.delete(queue_messages).where(*_LISTED))
_OLDEST_AT: Final = paged(sa.select(_m.queued_at).where(*_VISIBLE).order_by(_m.position))
_LOCK_EXPIRED: Final = paged(
    sa.select(_m.id)
    .where(*_VISIBLE, _m.queued_at <= sa.bindparam("kept_from"))
    .order_by(_m.position)
    .with_for_update(skip_locked=True)
)
_DELETE_PURGED: Final = Statement(
    sa.delete(queue_messages).where(
        _IN_QUEUE,
        _m.position.in_(
            page(
                sa.select(_m.position)
                .where(_IN_QUEUE, _m.position <= sa.bindparam("purged_through"))
                .order_by(_m.position)
            )
        ),
    )
)
_PURGED: Final = paged(
    sa.select(ONE)
    .select_from(queue_messages)
    .where(_IN_QUEUE, _m.position <= sa.bindparam("purged_through"))
)
_USED: Final = Statement(sa.select(sa.func.count(), total(_m.size)).where(_IN_QUEUE, _NOT_PURGED))
_COUNT_VISIBLE: Final = Statement(
    sa.select(sa.func.count()).select_from(queue_messages).where(*_VISIBLE)
)
_COUNT_HIDDEN: Final = Statement(
    sa.select(
        sa.func.count().filter(_m.hidden_until <= sa.bindparam("now")),
        sa.func.count().filter(_m.hidden_until > sa.bindparam("now"), _m.lease_token.is_not(None)),
        sa.func.count().filter(_m.hidden_until > sa.bindparam("now"), _m.lease_token.is_(None)),
    )
    .select_from(queue_messages)
    .where(_IN_QUEUE, IS_HIDDEN, _NOT_PURGED)
)
_FIRST: Final = paged(sa.select(_m.queued_at).where(_IN_QUEUE, _NOT_PURGED).order_by(_m.position))


def add_messages(
    tx: Connection, account_id: str, queue_id: str, messages: Sequence[Message]
) -> None:
    """Insert messages at the end of a queue; the caller must hold the lock on the queue's row."""
    for each in messages:
        row = {name: getattr(each, name) for name in _NEW}
        row["attributes"] = json_text(each.attributes)
        tx.execute(_ADD, queue_id=queue_id, account_id=account_id, **row)


def lock_oldest(tx: Connection, queue: Queue, kept_from: int, limit: int) -> list[tuple[str, int]]:
    """Lock the oldest messages that can be leased; return (id, size in bytes) of each.

    Skip locked rows, and messages queued at or before `kept_from`, which have expired.
    """
    rows = tx.rows(_LOCK_OLDEST, **_kept_in(queue), kept_from=kept_from, limit=limit)
    return [(row[0], row[1]) for row in rows]


def first_due(tx: Connection, queue: Queue, kept_from: int) -> int | None:
    """Return when the next message can be leased: 0 if one can be now, None if there is none.

    Visible messages queued at or before `kept_from` have expired, and are skipped.
    """
    if tx.row(_FIRST_VISIBLE, **_kept_in(queue), kept_from=kept_from, limit=1) is not None:
        return 0
    row = tx.row(_FIRST_HIDDEN, **_in(queue))
    return row[0] if row else None


def lease_messages(
    tx: Connection, queue: Queue, ids: Sequence[str], token: str, lease_end: int
) -> list[Message]:
    """Lease locked messages under a token; return them in the order in which they arrived."""
    listed_ids = text_list(ids)
    tx.execute(_LEASE, **_in(queue), ids=listed_ids, token=token, lease_end=lease_end)
    return [_message(row) for row in tx.rows(_FIND_ALL, **_in(queue), ids=listed_ids)]


def lock_leases(
    tx: Connection, queue: Queue, ids: Sequence[str]
) -> dict[str, tuple[str | None, int | None]]:
    """Lock messages; map each id to (lease token, end of the lease or delay).

    Ids of deleted or purged messages are left out.
    """
    rows = tx.rows(_LOCK_LEASES, **_kept_in(queue), ids=text_list(ids))
    return {row[0]: (row[1], row[2]) for row in rows}


def lock_due(tx: Connection, queue: Queue, now: int, limit: int) -> list[Message]:
    """Lock and return hidden messages whose delay or lease has ended; skip locked rows."""
    rows = tx.rows(_LOCK_DUE, **_in(queue), now=now, limit=limit)
    return [_message(row) for row in rows]


def show_messages(tx: Connection, queue: Queue, ids: Sequence[str]) -> None:
    """Make hidden messages visible, at their old position."""
    tx.execute(_SHOW, **_in(queue), ids=text_list(ids))


def hide_messages(tx: Connection, queue: Queue, ids: Sequence[str], lease_end: int) -> None:
    """Set the end of leases."""
    tx.execute(_HIDE, **_in(queue), ids=text_list(ids), lease_end=lease_end)


def delete_messages(tx: Connection, queue: Queue, ids: Sequence[str]) -> None:
    """Delete messages."""
    tx.execute(_DELETE, **_in(queue), ids=text_list(ids))


def lock_expired(tx: Connection, queue: Queue, kept_from: int, limit: int) -> list[str]:
    """Lock the oldest visible messages whose retention has ended; return their ids.

    These are the messages queued at or before `kept_from`. Locked rows are skipped.
    """
    # Checked first: without an expired message, the locking query would read the whole queue.
    if not _has_expired(tx, queue, kept_from):
        return []
    rows = tx.rows(_LOCK_EXPIRED, **_kept_in(queue), kept_from=kept_from, limit=limit)
    return [row[0] for row in rows]


def delete_purged(
    tx: Connection, account_id: str, queue_id: str, purged_through: int, limit: int
) -> int:
    """Delete a batch of purged messages; return the number deleted."""
    return tx.execute(
        _DELETE_PURGED,
        account_id=account_id,
        queue_id=queue_id,
        purged_through=purged_through,
        limit=limit,
    )


def has_purged(tx: Connection, account_id: str, queue_id: str, purged_through: int) -> bool:
    """Return True if purged messages still have rows."""
    row = tx.row(
        _PURGED, account_id=account_id, queue_id=queue_id, purged_through=purged_through, limit=1
    )
    return row is not None


def has_due(tx: Connection, queue: Queue, kept_from: int, now: int) -> bool:
    """Return True if a delay, a lease, or the retention of the oldest visible message has ended.

    The retention of messages queued at or before `kept_from` has ended.
    """
    if _has_expired(tx, queue, kept_from):
        return True
    hidden = tx.row(_FIRST_HIDDEN, **_in(queue))
    return hidden is not None and hidden[0] is not None and hidden[0] <= now


def _has_expired(tx: Connection, queue: Queue, kept_from: int) -> bool:
    oldest = tx.row(_OLDEST_AT, **_kept_in(queue), limit=1)
    return oldest is not None and oldest[0] <= kept_from


def used(tx: Connection, queue: Queue) -> tuple[int, int]:
    """Return (number, bytes) of the messages in a queue, without purged ones."""
    row = tx.row(_USED, **_kept_in(queue))
    return (row[0], int(row[1])) if row else (0, 0)


def depth(tx: Connection, queue: Queue, now: int) -> Depth:
    """Count the messages of a queue; those whose lease or delay has ended count as visible."""
    within = _kept_in(queue)
    visible = tx.row(_COUNT_VISIBLE, **within)
    hidden = tx.row(_COUNT_HIDDEN, **within, now=now)
    first = tx.row(_FIRST, **within, limit=1)
    assert visible is not None
    assert hidden is not None
    return Depth(visible[0] + hidden[0], hidden[1], hidden[2], None if first is None else first[0])


def _in(queue: Queue) -> dict[str, Any]:
    return {"queue_id": queue.id, "account_id": queue.account_id}


def _kept_in(queue: Queue) -> dict[str, Any]:
    """Return the parameters that select a queue's messages that are not purged."""
    return _in(queue) | {"purged_through": queue.purged_through}


def _message(row: Row) -> Message:
    message = Message(*row)
    return message._replace(
        attributes=msgspec.json.decode(cast("str", message.attributes), type=dict[str, str]),
        body=bytes(message.body),
    )
