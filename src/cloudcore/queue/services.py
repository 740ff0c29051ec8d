"""Queues of an account: changes with their rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, QuotaExceeded
from cloudcore.queue import rows
from cloudcore.queue.rows import Queue
from cloudcore.queue.rules import MAX_QUEUES, QueueMissing

DEAD_LETTER_QUEUE: Final = "redrive_policy.dead_letter_queue"
"""The field of a request that names it."""


class Redrive(NamedTuple):
    """A redrive policy."""

    dead_letter_queue_id: str
    max_leases: int


def get_queue(tx: Connection, account_id: str, region: str, queue_id: str) -> Queue:
    """Return a queue of an account, or raise `QueueMissing`."""
    found = rows.find_queue(tx, account_id, queue_id)
    if found is None or found.region != region:
        raise QueueMissing
    return found


def create_queue(tx: Connection, queue: Queue, redrive: Redrive | None) -> Queue:
    """Insert a queue.

    Raises:
        Conflict: the account has a queue of this name.
        QuotaExceeded: the account has `MAX_QUEUES`.
        QueueMissing: the dead-letter queue was deleted meanwhile.

    """
    lock_account(tx, queue.account_id)
    used = rows.count_queues(tx, queue.account_id, queue.region, "")
    if used >= MAX_QUEUES:
        raise QuotaExceeded(
            f"an account has at most {MAX_QUEUES} queues; delete some that nothing uses",
            quota="queues",
            limit=MAX_QUEUES,
            used=used,
        )
    made = _with_redrive(tx, queue, redrive)
    if not rows.add_queue(tx, made):
        raise Conflict("there is a queue of this name", name=queue.name)
    return made


def update_queue(
    tx: Connection,
    queue: Queue,
    changes: Mapping[str, Any],
    redrive: Redrive | None,
    now: int,
    *,
    sets_redrive: bool,
) -> Queue:
    """Change the fields of a queue, and its redrive policy if it `sets_redrive`.

    Raises:
        QueueMissing: it or its dead-letter queue was deleted meanwhile.
        InvalidInput: dead letters would come back to the queue itself.

    """
    if redrive is not None:
        # One such change of an account at a time: two could close a cycle together.
        lock_account(tx, queue.account_id)
    found = _locked(tx, queue)
    if not changes and not sets_redrive:
        return found
    changed = found._replace(**changes, updated_at=now)
    if sets_redrive:
        changed = _with_redrive(tx, changed, redrive)
    rows.save_queue(tx, changed)
    return changed


def delete_queue(tx: Connection, queue: Queue, now: int) -> None:
    """Delete a queue; its messages are gone at once, and their rows soon.

    Raises:
        QueueMissing: it was deleted meanwhile.
        Conflict: it is the dead-letter queue of another one.

    """
    found = _locked(tx, queue)
    sending = rows.name_of_one_sending(tx, found.account_id, found.id)
    if sending is not None:
        raise Conflict(
            f"the dead letters of the queue {sending} come here; change its redrive policy first",
            reason="is_dead_letter_queue",
            queue=sending,
        )
    rows.soft_delete_queue(tx, found, now)


def purge_queue(tx: Connection, queue: Queue) -> Queue:
    """Delete all messages of a queue that were sent before, leased ones too."""
    found = _locked(tx, queue)
    rows.purge_queue(tx, found)
    return found


def _with_redrive(tx: Connection, queue: Queue, redrive: Redrive | None) -> Queue:
    """Return a queue with another redrive policy; its dead-letter queue is held."""
    if redrive is None:
        return queue._replace(
            dead_letter_queue_id=None, max_leases=None, dead_letter_queue_name=None
        )
    dead = redrive.dead_letter_queue_id
    if dead == queue.id:
        raise _refusal("must be another queue", "same_queue")
    held = rows.hold_queue(tx, queue.account_id, dead)
    if held is None:
        raise QueueMissing
    if rows.are_dead_letters_sent(tx, queue.account_id, dead, queue.id):
        raise _refusal(
            f"its own dead letters come, perhaps by further queues, to the queue {queue.name}",
            "cycle",
        )
    return queue._replace(
        dead_letter_queue_id=held.id,
        max_leases=redrive.max_leases,
        dead_letter_queue_name=held.name,
    )


def _refusal(words: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{DEAD_LETTER_QUEUE}: {words}", field=DEAD_LETTER_QUEUE, reason=reason)


def _locked(tx: Connection, queue: Queue) -> Queue:
    found = rows.lock_queue(tx, queue.account_id, queue.id)
    if found is None:
        raise QueueMissing
    return found
