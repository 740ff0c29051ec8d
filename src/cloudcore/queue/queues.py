"""Queues of accounts: the rows, and the rules for changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import sqlalchemy as sa
from msgspec import UNSET, Meta, UnsetType

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, given
from cloudcore.db.schema import partial_index
from cloudcore.db.statement import Statement, paged
from cloudcore.errors import Conflict, InvalidInput, invalid_field
from cloudcore.queue.message_rows import Depth, queue_messages
from cloudcore.queue.queue import QUEUE, Queue, QueueMissing
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import Reference
from cloudcore.resources.rows import IS_DELETED, Rows
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody

_FIELD: Final = "redrive_policy.dead_letter_queue"
_HAS_DEAD_LETTERS: Final = sa.text("dead_letter_queue_id IS NOT NULL")


class GivenRedrivePolicy(RequestBody):
    """Where messages go after repeated leases without an acknowledgement."""

    dead_letter_queue: str
    """The id, the name or the CRN of another queue of the account."""
    max_leases: Annotated[int, Meta(ge=1, le=1000)]
    """A message goes there when a lease ends and it was leased this many times."""


class RedrivePolicy(ResponseBody):
    """Where messages go after repeated leases without an acknowledgement."""

    dead_letter_queue: ResourceRef
    max_leases: int


class QueueDepth(ResponseBody):
    """How many messages a queue holds."""

    visible: int
    """Messages that can be leased."""
    leased: int
    delayed: int
    oldest_age_seconds: int | None
    """Seconds since the oldest message entered the queue; null if the queue is empty."""


def _last_position(queue_id: str) -> object:
    """Return an SQL expression for the last position in a queue, or `purged_through` if empty.

    `queue_id` is the name of the bind parameter for the queue's id.
    """
    of_queue = queue_messages.c.queue_id == sa.bindparam(queue_id)
    of_account = given(queue_messages.c.account_id)
    last = sa.select(sa.func.max(queue_messages.c.position)).where(of_queue, of_account)
    return sa.func.coalesce(last.scalar_subquery(), sa.column("purged_through"))


ROWS: Final = Rows(
    QUEUE,
    sa.CheckConstraint("retention_seconds > 0", name="retention_seconds"),
    sa.CheckConstraint("lease_seconds > 0", name="lease_seconds"),
    sa.CheckConstraint("delay_seconds >= 0", name="delay_seconds"),
    sa.CheckConstraint("max_leases > 0", name="max_leases"),
    sa.CheckConstraint("dead_letter_queue_id <> id", name="dead_letter_queue_id"),
    sa.CheckConstraint(
        "(dead_letter_queue_id IS NULL) = (max_leases IS NULL)", name="redrive_policy"
    ),
    partial_index(
        "ix_queues_dead_letter_queue_id", "dead_letter_queue_id", where=_HAS_DEAD_LETTERS
    ),
    partial_index("ix_queues_deleted", "id", where=IS_DELETED),
    types={"max_leases": sa.Integer()},
    references={"dead_letter_queue": None},
    on_delete={
        "max_leases": sa.text("NULL"),
        "purged_through": _last_position("of_id"),
    },
    missing=QueueMissing,
)
_q = ROWS.table.c
_PURGE: Final = Statement(
    ROWS.table.update()
    .where(_q.id == sa.bindparam("queue_id"), given(_q.account_id))
    .values(purged_through=_last_position("queue_id"))
)
_next = ROWS.table.alias("next_queues")
_path = (
    sa.select(_q.dead_letter_queue_id.label("id"))
    .where(_q.id == sa.bindparam("from_id"), given(_q.account_id))
    .cte("path", recursive=True)
)
_path = _path.union(
    sa.select(_next.c.dead_letter_queue_id).join(
        _path, (_next.c.id == _path.c.id) & given(_next.c.account_id)
    )
)
_IS_ON_PATH: Final = Statement(
    sa.select(ONE).select_from(_path).where(_path.c.id == sa.bindparam("to_id"))
)
_LIST_LIVE: Final = paged(
    ROWS.columns.where(_q.id > sa.bindparam("after"), _q.deleted_at.is_(None)).order_by(_q.id)
)
_LIST_DELETED: Final = paged(
    sa.select(_q.account_id, _q.id).where(IS_DELETED, _q.id > sa.bindparam("after")).order_by(_q.id)
)
_ERASE: Final = Statement(
    ROWS.table.delete().where(
        given(_q.id, _q.account_id),
        _q.deleted_at.is_not(None),
    )
)


def purge(tx: Connection, queue: Queue) -> Queue:
    """Delete all messages of a queue that have been sent so far, including leased ones.

    Raise `QueueMissing` if the queue was deleted meanwhile.
    """
    found = ROWS.lock(tx, queue.account_id, queue.id)
    tx.execute(_PURGE, queue_id=found.id, account_id=found.account_id)
    return found


def list_live(tx: Connection, after: str, limit: int) -> Sequence[Queue]:
    """Return undeleted queues of all accounts by id, beginning after the id `after`."""
    return ROWS.read_all(tx, _LIST_LIVE, after=after, limit=limit)


def list_deleted(tx: Connection, after: str, limit: int) -> list[tuple[str, str]]:
    """Return (account id, queue id) of deleted queues that have a row, after the id `after`."""
    return [(row[0], row[1]) for row in tx.rows(_LIST_DELETED, after=after, limit=limit)]


def erase_queue(tx: Connection, account_id: str, queue_id: str) -> None:
    """Delete the row of a deleted queue that has no messages."""
    tx.execute(_ERASE, account_id=account_id, id=queue_id)


def _check_redrive(tx: Connection, queue: Queue, old: Queue | None) -> Queue:
    """Raise `InvalidInput` for a cycle of dead-letter queues; else return `queue`.

    Lock a new dead-letter queue, so that it is not deleted; raise `QueueMissing` if it has been.
    """
    dead = queue.dead_letter_queue
    if dead is None or (old is not None and dead == old.dead_letter_queue):
        return queue
    if dead.id == queue.id:
        raise _refusal("must be another queue", "same_queue")
    held = ROWS.hold(tx, queue.account_id, dead.id)
    if held is None:
        raise QueueMissing
    account_id = queue.account_id
    if tx.row(_IS_ON_PATH, account_id=account_id, from_id=dead.id, to_id=queue.id) is not None:
        raise _refusal(
            f"its own dead letters come, perhaps by further queues, to the queue {queue.name}",
            "cycle",
        )
    return queue


def _check_sending(tx: Connection, queue: Queue) -> None:
    """Raise `Conflict` if the queue to delete is the dead-letter queue of another queue."""
    sending = ROWS.name_of_one_referring(tx, "dead_letter_queue", queue.account_id, queue.id)
    if sending is not None:
        raise Conflict(
            f"the dead letters of the queue {sending} come here; change its redrive policy first",
            reason="is_dead_letter_queue",
            queue=sending,
        )


def _refusal(words: str, reason: str) -> InvalidInput:
    return invalid_field(_FIELD, words, reason)


async def _redrive(ctx: RequestContext, given: GivenRedrivePolicy | None) -> Mapping[str, object]:
    """Return the fields for a redrive policy; raise unless the caller may send to its queue."""
    if given is None:
        return {"dead_letter_queue": None, "max_leases": None}
    found = await ctx.database.read(
        ROWS.resolve,
        account_of(ctx),
        ctx.settings.region,
        _FIELD,
        given.dead_letter_queue,
        ctx.right_to("queue:SendMessage"),
    )
    reference = Reference(found.id, found.name)
    return {"dead_letter_queue": reference, "max_leases": given.max_leases}


def _redrive_policy(queue: Queue) -> RedrivePolicy | None:
    dead = queue.dead_letter_queue
    if dead is None or queue.max_leases is None:
        return None
    crn = QUEUE.crn(queue.region, queue.account_id, dead.name)
    reference = ResourceRef(id=dead.id, crn=crn, name=dead.name)
    return RedrivePolicy(dead_letter_queue=reference, max_leases=queue.max_leases)


def depth_of(depth: Depth, now: int) -> QueueDepth:
    """Convert a queue's depth for a response body."""
    oldest = depth.oldest_at
    return QueueDepth(
        visible=depth.visible,
        leased=depth.leased,
        delayed=depth.delayed,
        oldest_age_seconds=None if oldest is None else max(0, now - oldest) // MICROSECONDS,
    )


QUEUES: Final = Methods(
    ROWS,
    before_save=_check_redrive,
    before_delete=_check_sending,
    composites=(
        Composite(
            name="redrive_policy",
            words="Null: messages stay, however often they are leased.",
            given=GivenRedrivePolicy,
            shown=RedrivePolicy,
            resolve=_redrive,
            show=_redrive_policy,
        ),
        Composite(
            name="depth",
            words="Of a single queue; absent in lists and after changes.",
            shown=QueueDepth | UnsetType,
            show=lambda _: UNSET,
        ),
    ),
    # Otherwise, two concurrent changes of an account could together close a cycle.
    one_at_a_time=frozenset({"dead_letter_queue"}),
    statuses={"create": (404,), "delete": (409,)},
    docs={
        "create": "Create a queue. An account has at most 1,000.\n\nWith a redrive policy, the"
        " caller needs `queue:SendMessage` on the dead-letter queue.",
        "update": "Change a queue; its name stays.\n\nWith a redrive policy, the caller needs"
        " `queue:SendMessage` on the dead-letter queue, from which no dead letters may come back to"
        " this one.",
        "delete": "Delete a queue and its messages. That to which dead letters of another go stays"
        " (409).",
    },
)
