"""Queries of queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec
from sqlalchemy import Select, bindparam, func, literal_column, select
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, count
from cloudcore.db.statement import Statement, page
from cloudcore.queue.tables import HAS_DEAD_LETTERS, IS_DELETED, IS_LIVE, queue_messages, queues

_q = queues.c
_others = queues.alias("dead_letter_queues")


class Queue(NamedTuple):
    """A queue."""

    id: str
    account_id: str
    region: str
    name: str
    description: str
    tags: Mapping[str, str]
    retention_seconds: int
    lease_seconds: int
    """Of a lease that says none itself."""
    delay_seconds: int
    dead_letter_queue_id: str | None
    max_leases: int | None
    purged_through: int
    """The position of the last message that was purged; 0 if none was."""
    created_at: int
    updated_at: int
    dead_letter_queue_name: str | None = None
    """Of the other queue's row."""

    @property
    def crn(self) -> str:
        """Return its CRN."""
        return queue_crn(self.region, self.account_id, self.name)


def queue_crn(region: str, account_id: str, name: str) -> str:
    """Return the CRN of a queue; `name` may be a pattern."""
    return f"crn:queue:{region}:{account_id}:queue/{name}"


_STORED: Final = Queue._fields[:-1]
_CHANGEABLE: Final = (
    "description",
    "tags",
    "retention_seconds",
    "lease_seconds",
    "delay_seconds",
    "dead_letter_queue_id",
    "max_leases",
    "updated_at",
)


def _columns() -> Select[Any]:
    joined = queues.outerjoin(
        _others,
        (_others.c.id == _q.dead_letter_queue_id) & (_others.c.account_id == _q.account_id),
    )
    return select(*(_q[name] for name in _STORED), _others.c.name).select_from(joined)


_OF_ACCOUNT: Final = _q.account_id == bindparam("account_id")
_IS_LIVE: Final = _q.deleted_at.is_(None)
_IS_QUEUE: Final = (_q.id == bindparam("id"), _OF_ACCOUNT, _IS_LIVE)
_IN_LIST: Final = (
    _OF_ACCOUNT,
    _q.region == bindparam("region"),
    _IS_LIVE,
    (bindparam("name") == sql("''")) | (_q.name == bindparam("name")),
)

_ADD: Final = Statement(
    insert(queues)
    .values(bound(_STORED))
    .on_conflict_do_nothing(index_elements=["account_id", "region", "name"], index_where=IS_LIVE)
)
_FIND: Final = Statement(_columns().where(*_IS_QUEUE))
_LOCK: Final = Statement(_columns().where(*_IS_QUEUE).with_for_update(of=queues))
_HOLD: Final = Statement(
    _columns().where(*_IS_QUEUE).with_for_update(of=queues, read=True, key_share=True)
)
_FIND_NAMED: Final = Statement(
    _columns().where(
        _OF_ACCOUNT, _q.region == bindparam("region"), _q.name == bindparam("name"), _IS_LIVE
    )
)
_LIST: Final = Statement(
    page(_columns().where(*_IN_LIST, _q.id > bindparam("after")).order_by(_q.id))
)
_COUNT: Final = Statement(select(func.count()).select_from(queues).where(*_IN_LIST))
_SAVE: Final = Statement(
    queues.update().where(_q.id == bindparam("queue_id"), _OF_ACCOUNT).values(bound(_CHANGEABLE))
)
_LAST_POSITION: Final = (
    select(func.max(queue_messages.c.position))
    .where(
        queue_messages.c.queue_id == bindparam("queue_id"),
        queue_messages.c.account_id == bindparam("account_id"),
    )
    .scalar_subquery()
)
_PURGE: Final = Statement(
    queues.update()
    .where(_q.id == bindparam("queue_id"), _OF_ACCOUNT)
    .values(purged_through=func.coalesce(_LAST_POSITION, _q.purged_through))
)
_SOFT_DELETE: Final = Statement(
    queues.update()
    .where(_q.id == bindparam("queue_id"), _OF_ACCOUNT)
    .values(
        deleted_at=bindparam("now"),
        dead_letter_queue_id=sql("NULL"),
        max_leases=sql("NULL"),
        purged_through=func.coalesce(_LAST_POSITION, _q.purged_through),
    )
)
_NAME_ONE_SENDING: Final = Statement(
    select(_q.name)
    .where(
        _q.dead_letter_queue_id == bindparam("dead_letter_queue_id"), _OF_ACCOUNT, HAS_DEAD_LETTERS
    )
    .order_by(_q.name)
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)
_next = queues.alias("next_queues")
_path = (
    select(_q.dead_letter_queue_id.label("id"))
    .where(_q.id == bindparam("from_id"), _OF_ACCOUNT)
    .cte("path", recursive=True)
)
_path = _path.union(
    select(_next.c.dead_letter_queue_id).join(
        _path, (_next.c.id == _path.c.id) & (_next.c.account_id == bindparam("account_id"))
    )
)
_IS_ON_PATH: Final = Statement(
    select(literal_column("1")).select_from(_path).where(_path.c.id == bindparam("to_id"))
)
_LIST_ALL: Final = Statement(
    page(_columns().where(_q.id > bindparam("after"), _IS_LIVE).order_by(_q.id))
)
_LIST_DELETED: Final = Statement(
    page(select(_q.account_id, _q.id).where(IS_DELETED, _q.id > bindparam("after")).order_by(_q.id))
)
_ERASE: Final = Statement(
    queues.delete().where(
        _q.id == bindparam("id"),
        _q.account_id == bindparam("account_id"),
        _q.deleted_at.is_not(None),
    )
)


def add_queue(tx: Connection, queue: Queue) -> bool:
    """Insert a queue; return False if its name is taken."""
    row = {name: getattr(queue, name) for name in _STORED}
    return tx.execute(_ADD, **row | {"tags": _encoded(queue.tags)}) == 1


def find_queue(tx: Connection, account_id: str, queue_id: str) -> Queue | None:
    """Return a queue of an account, or None."""
    return _queue(tx.row(_FIND, account_id=account_id, id=queue_id))


def find_queue_named(tx: Connection, account_id: str, region: str, name: str) -> Queue | None:
    """Return the queue of a name, or None."""
    return _queue(tx.row(_FIND_NAMED, account_id=account_id, region=region, name=name))


def lock_queue(tx: Connection, account_id: str, queue_id: str) -> Queue | None:
    """Return a queue, or None; block changes of it, and what holds it, until `tx` ends."""
    return _queue(tx.row(_LOCK, account_id=account_id, id=queue_id))


def hold_queue(tx: Connection, account_id: str, queue_id: str) -> Queue | None:
    """Return a queue, or None; it is neither deleted nor purged until `tx` ends.

    Others may hold it too.
    """
    return _queue(tx.row(_HOLD, account_id=account_id, id=queue_id))


def list_queues(
    tx: Connection, account_id: str, region: str, name: str, after: str, limit: int
) -> list[Queue]:
    """Return queues of an account, oldest first; if `name` is not empty, only that one."""
    rows = tx.rows(_LIST, account_id=account_id, region=region, name=name, after=after, limit=limit)
    return [found for row in rows if (found := _queue(row))]


def count_queues(tx: Connection, account_id: str, region: str, name: str) -> int:
    """Count the queues that `list_queues` lists."""
    return count(tx, _COUNT, account_id=account_id, region=region, name=name)


def save_queue(tx: Connection, queue: Queue) -> None:
    """Update the changeable columns of a queue."""
    row = {name: getattr(queue, name) for name in _CHANGEABLE} | {"tags": _encoded(queue.tags)}
    tx.execute(_SAVE, queue_id=queue.id, account_id=queue.account_id, **row)


def purge_queue(tx: Connection, queue: Queue) -> None:
    """Let all messages of a queue count as purged; `queue` must be locked."""
    tx.execute(_PURGE, queue_id=queue.id, account_id=queue.account_id)


def soft_delete_queue(tx: Connection, queue: Queue, now: int) -> None:
    """Free the name of a queue and purge it; `queue` must be locked."""
    tx.execute(_SOFT_DELETE, queue_id=queue.id, account_id=queue.account_id, now=now)


def name_of_one_sending(tx: Connection, account_id: str, dead_letter_queue_id: str) -> str | None:
    """Return the name of a queue whose dead letters go to a queue, or None."""
    row = tx.row(
        _NAME_ONE_SENDING, account_id=account_id, dead_letter_queue_id=dead_letter_queue_id
    )
    return row[0] if row else None


def are_dead_letters_sent(tx: Connection, account_id: str, from_id: str, to_id: str) -> bool:
    """Return True if dead letters of one queue come to another, directly or by further queues.

    Also a cycle of queues from before they were refused is walked once.
    """
    row = tx.row(_IS_ON_PATH, account_id=account_id, from_id=from_id, to_id=to_id)
    return row is not None


def list_live(tx: Connection, after: str, limit: int) -> list[Queue]:
    """Return the queues of all accounts that are not deleted, after an id."""
    return [found for row in tx.rows(_LIST_ALL, after=after, limit=limit) if (found := _queue(row))]


def list_deleted(tx: Connection, after: str, limit: int) -> list[tuple[str, str]]:
    """Return (account id, queue id) of deleted queues that have a row, after an id."""
    return [(row[0], row[1]) for row in tx.rows(_LIST_DELETED, after=after, limit=limit)]


def erase_queue(tx: Connection, account_id: str, queue_id: str) -> None:
    """Delete the row of a deleted queue that has no messages."""
    tx.execute(_ERASE, account_id=account_id, id=queue_id)


def _encoded(tags: Mapping[str, str]) -> str:
    return msgspec.json.encode(tags, order="deterministic").decode()


def _queue(row: Row | None) -> Queue | None:
    if row is None:
        return None
    queue = Queue(*row)
    return queue._replace(tags=msgspec.json.decode(cast("str", queue.tags), type=dict[str, str]))
