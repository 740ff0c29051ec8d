"""Send, lease and acknowledge messages, extend leases, and settle due messages.

A message is delivered at least once: it leaves its queue only when a lease of it is acknowledged,
its retention ends, the queue is purged, or it is moved to the dead-letter queue. Messages are
leased in the order in which they arrived; a message whose lease has ended returns to its old
position. Timers settle due messages in queues without consumers, and delete purged messages.

The id of a lease is 32 bytes in base64url: 16 bytes of the message's id, and 16 random bytes that
all messages leased by one request share. Only the client that leased a message knows the random
bytes. An id can be acknowledged once, and only until the lease ends: another lease of the message
has other random bytes.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from cloudcore import base64url
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.queue import message_rows
from cloudcore.queue.message_rows import Message
from cloudcore.queue.queue import (
    MAX_LEASED_BYTES,
    QUEUE_BYTES,
    QUEUE_MESSAGES,
    Queue,
    QueueMissing,
)
from cloudcore.queue.queues import ROWS
from cloudcore.quotas.limits import check_limit
from cloudcore.wire import ResponseBody

_BYTES: Final = 32
_LENGTH: Final = 43
_TOKEN_BYTES: Final = 16


class LeaseId(NamedTuple):
    """A parsed lease id."""

    message_id: str
    token: str


def new_token() -> str:
    """Return the random part of new lease ids, as stored in the column."""
    return base64url.encode(os.urandom(_TOKEN_BYTES))


def lease_id(message_id: str, token: str | None) -> str:
    """Return the id of a message's lease under a token."""
    assert token is not None, "it is leased"
    return base64url.encode(uuid.UUID(message_id).bytes + base64url.decode(token))


def read_lease_id(text: str) -> LeaseId | None:
    """Parse a lease id; return None if it is malformed."""
    if len(text) != _LENGTH or not text.isascii():
        return None
    try:
        value = base64url.decode(text)
    except ValueError:
        return None
    if len(value) != _BYTES or base64url.encode(value) != text:
        return None
    return LeaseId(
        str(uuid.UUID(bytes=value[:_TOKEN_BYTES])), base64url.encode(value[_TOKEN_BYTES:])
    )


SETTLED_AT_ONCE: Final = 100
"""Maximum number of expired messages, and of other due messages, that a transaction settles."""


class NewMessage(NamedTuple):
    """A message to send."""

    body: str
    attributes: Mapping[str, str]
    size: int
    delay_seconds: int | None = None
    """None for the queue's default."""


class FailedLease(ResponseBody):
    """A lease that was neither acknowledged nor extended, and why."""

    lease_id: str
    code: Literal["LEASE_EXPIRED", "NOT_FOUND"]
    """`LEASE_EXPIRED`: the lease has ended, so the message can be leased again, or is. `NOT_FOUND`:
    the lease was acknowledged, its message was deleted, or it never existed."""
    message: str


def send_messages(
    tx: Connection,
    account_id: str,
    queue_id: str,
    messages: Sequence[NewMessage],
    now: int,
    *,
    checks_room: bool,
) -> list[Message]:
    """Add messages at the end of a queue, all or none.

    Raise `QueueMissing` if the queue was deleted. With `checks_room`, raise `QuotaExceeded` if the
    queue is full.
    """
    queue = ROWS.hold(tx, account_id, queue_id)
    if queue is None:
        raise QueueMissing
    if checks_room:
        _check_room(tx, queue)
    made = [_made(queue, each, now) for each in messages]
    message_rows.add_messages(tx, account_id, queue_id, made)
    return made


def _found(tx: Connection, account_id: str, queue_id: str) -> Queue:
    queue = ROWS.find(tx, account_id, queue_id)
    if queue is None:
        raise QueueMissing
    return queue


def first_due(tx: Connection, account_id: str, queue_id: str, now: int) -> int | None:
    """Return when a message of a queue can be leased next, or None if there is none.

    The moment is in microseconds since the epoch; a past one means now.

    Raise `QueueMissing` if the queue was deleted.
    """
    queue = _found(tx, account_id, queue_id)
    return message_rows.first_due(tx, queue, _kept_from(queue, now))


def lease_messages(
    tx: Connection,
    account_id: str,
    queue_id: str,
    limit: int,
    lease_seconds: int | None,
    now: int,
) -> list[Message] | None:
    """Lease the oldest messages of a queue; return them in the order in which they arrived.

    Without `lease_seconds`, the queue's default applies.

    Return None if none can be leased, and `tx` has settled its maximum of due messages: a new
    transaction may settle more.

    Raise `QueueMissing` if the queue was deleted.
    """
    queue = _found(tx, account_id, queue_id)
    settled = settle(tx, queue, now)
    found = message_rows.lock_oldest(tx, queue, _kept_from(queue, now), limit)
    ids: list[str] = []
    total = 0
    for message_id, size in found:
        total += size
        if ids and total > MAX_LEASED_BYTES:
            break
        ids.append(message_id)
    if not ids:
        return None if settled >= SETTLED_AT_ONCE else []
    lease_end = _later(now, lease_seconds or queue.lease_seconds)
    return message_rows.lease_messages(tx, queue, ids, new_token(), lease_end)


def acknowledge(
    tx: Connection, queue: Queue, lease_ids: Sequence[str], now: int
) -> tuple[list[str], list[FailedLease]]:
    """Delete the messages whose lease has not ended; return (ids of the leases, failed leases)."""
    held, failed = _held(tx, queue, lease_ids, now)
    if held:
        message_rows.delete_messages(tx, queue, list(held.values()))
    return list(held), failed


def extend(
    tx: Connection, queue: Queue, lease_ids: Sequence[str], lease_seconds: int, now: int
) -> tuple[list[str], list[FailedLease]]:
    """Let the leases that have not ended end in `lease_seconds`; 0 ends them now.

    Return (ids of the extended leases, failed leases).
    """
    held, failed = _held(tx, queue, lease_ids, now)
    if held:
        message_rows.hide_messages(tx, queue, list(held.values()), _later(now, lease_seconds))
    return list(held), failed


def has_due(tx: Connection, queue: Queue, now: int) -> bool:
    """Return True if `settle` would change anything."""
    return message_rows.has_due(tx, queue, _kept_from(queue, now), now)


def settle(tx: Connection, queue: Queue, now: int) -> int:
    """Settle messages whose delay, lease or retention has ended; return the number of messages.

    A message whose retention has ended is deleted. A message whose lease has ended can be leased
    again, or moves to the dead-letter queue if it was leased as often as the redrive policy allows.
    One call settles up to `SETTLED_AT_ONCE` expired messages, and as many others.
    """
    kept_from = _kept_from(queue, now)
    gone = message_rows.lock_expired(tx, queue, kept_from, SETTLED_AT_ONCE)
    back, dead = [], []
    for each in message_rows.lock_due(tx, queue, now, SETTLED_AT_ONCE):
        if each.position <= queue.purged_through or each.queued_at <= kept_from:
            gone.append(each.id)
        elif each.lease_token is not None and 0 < (queue.max_leases or 0) <= each.lease_count:
            dead.append(each)
        else:
            back.append(each.id)
    gone = list(dict.fromkeys(gone))
    if gone:
        message_rows.delete_messages(tx, queue, gone)
    if back:
        message_rows.show_messages(tx, queue, back)
    if dead:
        _move(tx, queue, dead, now)
    return len(back) + len(dead) + len(gone)


def _check_room(tx: Connection, queue: Queue) -> None:
    """Raise `QuotaExceeded` if the queue is full."""
    count, size = message_rows.used(tx, queue)
    advice = "lease and acknowledge some first"
    words = f"a queue holds at most {{limit}} messages; {advice}"
    check_limit(tx, queue.account_id, QUEUE_MESSAGES, count, words)
    words = f"the messages of a queue have at most {{limit}} bytes; {advice}"
    check_limit(tx, queue.account_id, QUEUE_BYTES, size, words)


def _move(tx: Connection, queue: Queue, dead: Sequence[Message], now: int) -> None:
    """Move messages to the dead-letter queue, where they arrive now.

    If that queue was deleted since `queue` was read, the messages stay: the redrive policy has
    changed.
    """
    assert queue.dead_letter_queue is not None
    target = ROWS.hold(tx, queue.account_id, queue.dead_letter_queue.id)
    if target is None:
        return
    message_rows.delete_messages(tx, queue, [each.id for each in dead])
    moved = [
        each._replace(queued_at=now, hidden_until=None, lease_token=None, lease_count=0)
        for each in sorted(dead)
    ]
    message_rows.add_messages(tx, queue.account_id, target.id, moved)


def _held(
    tx: Connection, queue: Queue, lease_ids: Sequence[str], now: int
) -> tuple[dict[str, str], list[FailedLease]]:
    """Lock messages; return (map from valid lease ids to message ids, failed leases)."""
    read = {each: read_lease_id(each) for each in dict.fromkeys(lease_ids)}
    found = message_rows.lock_leases(
        tx, queue, sorted({each.message_id for each in read.values() if each is not None})
    )
    held: dict[str, str] = {}
    failed: list[FailedLease] = []
    for each, meant in read.items():
        if meant is None or meant.message_id not in found:
            words = "there is no such lease: it was acknowledged, or its message is gone"
            failed.append(FailedLease(lease_id=each, code="NOT_FOUND", message=words))
            continue
        token, lease_end = found[meant.message_id]
        if token == meant.token and (lease_end or 0) > now:
            held[each] = meant.message_id
        else:
            words = "the lease ended before; the message is leased again"
            failed.append(FailedLease(lease_id=each, code="LEASE_EXPIRED", message=words))
    return held, failed


def _made(queue: Queue, new: NewMessage, now: int) -> Message:
    delay = queue.delay_seconds if new.delay_seconds is None else new.delay_seconds
    return Message(
        position=0,
        id=uuid7(now),
        size=new.size,
        queued_at=now,
        hidden_until=_later(now, delay) if delay else None,
        lease_token=None,
        lease_count=0,
        sent_at=now,
        attributes=new.attributes,
        body=new.body.encode(),
    )


def _kept_from(queue: Queue, now: int) -> int:
    """Return a moment in microseconds since the epoch; messages queued until then have expired."""
    return now - queue.retention_seconds * MICROSECONDS


def _later(now: int, seconds: int) -> int:
    return now + seconds * MICROSECONDS
