"""Queries of the run that seals plain objects: the remaining objects, and their KMS keys.

The index ``ix_blob_objects_plain`` lists plain objects by account and id. A sealed object leaves
the index, so no other record of a run's progress is needed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, bindparam, func, literal_column, select, text, tuple_

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, find_all, given
from cloudcore.db.statement import Statement, paged
from cloudcore.objects.stored_rows import ObjectRow
from registry.metadata.blobs.objects import BLOB_ROWS
from registry.metadata.blobs.wraps import find_uses
from registry.metadata.encryption_bindings import SharedKey, effective_keys
from registry.metadata.tables import blob_objects

Position = tuple[str, str]
"""The ids of an object's account and of the object."""
FIRST: Final[Position] = ("", "")
"""The position before every object."""
MOST_COUNTED: Final = 10_000
"""The maximum number of plain objects that an estimate counts."""

_o = blob_objects.c
_IS_PLAIN: Final[ColumnElement[bool]] = text("blob_objects.encoding = 'plain'")  # type: ignore[assignment]

_ANY_ACCOUNT: Final = _o.account_id > literal_column("''")
"""Always true; with it, only the index of plain objects is read."""


class PlainTotals(NamedTuple):
    """The number and bytes of plain objects."""

    object_count: int
    stored_bytes: int
    damaged_count: int = 0
    """How many of these are damaged; they are not sealed until a push has healed them."""


_NEXT: Final = paged(
    BLOB_ROWS.rows.where(
        _IS_PLAIN,
        _o.damage.is_(None),
        tuple_(_o.account_id, _o.id) > tuple_(bindparam("after_account"), bindparam("after_id")),
    ).order_by(_o.account_id, _o.id)
)
_TOTALS: Final = Statement(
    select(
        func.count(), func.coalesce(func.sum(_o.stored_size), text("0")), func.count(_o.damage)
    ).where(_IS_PLAIN, _ANY_ACCOUNT)
)


def _bounded(*where: ColumnElement[bool]) -> Statement:
    """Build a query for the totals of the first `MOST_COUNTED` plain objects."""
    some = (
        select(_o.stored_size)
        .where(_IS_PLAIN, *where)
        .limit(literal_column(str(MOST_COUNTED)))
        .offset(ZERO)
        .subquery("some")
    )
    return Statement(select(func.count(), func.coalesce(func.sum(some.c.stored_size), text("0"))))


_ESTIMATE: Final = _bounded(_ANY_ACCOUNT)
_OF_ACCOUNT: Final = _bounded(given(_o.account_id))


def next_plain(tx: Connection, after: Position, limit: int) -> list[ObjectRow]:
    """Return up to `limit` undamaged plain objects after a position, sorted by position."""
    return find_all(tx, ObjectRow, _NEXT, after_account=after[0], after_id=after[1], limit=limit)


def sealing_keys(tx: Connection, account_id: str, object_id: str) -> list[SharedKey]:
    """Return the KMS keys that repositories with a link or tombstone of an object write under."""
    uses = find_uses(tx, account_id, object_id)
    return effective_keys(tx, account_id, {use.repository_id for use in uses})


def count_plain(tx: Connection) -> PlainTotals:
    """Count the plain objects of all accounts; this reads each object's row."""
    return _totals(tx, _TOTALS)


def estimate_plain(tx: Connection) -> PlainTotals:
    """Count at most `MOST_COUNTED` plain objects; `damaged_count` stays 0."""
    return _totals(tx, _ESTIMATE)


def estimate_plain_of(tx: Connection, account_id: str) -> PlainTotals:
    """Count the plain objects of an account, like `estimate_plain`."""
    return _totals(tx, _OF_ACCOUNT, account_id=account_id)


def _totals(tx: Connection, statement: Statement, **of: str) -> PlainTotals:
    (row,) = tx.rows(statement, **of)
    return PlainTotals(*map(int, row))
