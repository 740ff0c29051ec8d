"""Queries of backups: the objects that a database names, and rows that no backup keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, literal_column, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, page, text_list
from cloudcore.identity.tables import accounts
from registry.metadata.blobs.inline import drop_quarantined_bodies
from registry.metadata.collection_tables import quarantined_objects
from registry.metadata.collector.audit import HAS_BYTES
from registry.metadata.tables import blob_objects, ended_uploads, uploads

_o = blob_objects.c


class NamedObject(NamedTuple):
    """An object that the database names, and whose bytes are in the store."""

    stored_id: str
    digest: str
    stored_size: int
    encoding: str


_FIRST_ACCOUNT: Final = Statement(select(func.min(accounts.c.id)))
_IS_STORED: Final = (~_o.is_inline, HAS_BYTES)
_TOTALS: Final = Statement(
    select(func.count(), func.coalesce(func.sum(_o.stored_size), literal_column("0"))).where(
        *_IS_STORED
    )
)
_OBJECTS: Final = Statement(
    page(
        select(*(_o[name] for name in NamedObject._fields))
        .where(_o.stored_id > bindparam("after"), *_IS_STORED)
        .order_by(_o.stored_id)
    )
)
_NAMED: Final = Statement(select(_o.stored_id).where(_o.stored_id.in_(listed("ids")), *_IS_STORED))
_UNFINISHED: Final = (
    # Without its row, a session whose id is still valid would seem to have received nothing.
    Statement(
        insert(ended_uploads)
        .from_select(["id"], select(uploads.c.id).where(uploads.c.id.is_not(None)))
        .on_conflict_do_nothing()
    ),
    Statement(uploads.delete()),
    Statement(quarantined_objects.delete()),
)


def first_account(tx: Connection) -> str | None:
    """Return the id of the first account, which is never deleted, or None."""
    row = tx.row(_FIRST_ACCOUNT)
    return None if row is None else row[0]


def total_objects(tx: Connection) -> tuple[int, int]:
    """Return the number of objects in the store, and of their bytes there."""
    row = tx.row(_TOTALS)
    assert row is not None
    return int(row[0]), int(row[1])


def list_objects(tx: Connection, after: str, limit: int) -> list[NamedObject]:
    """Return up to `limit` objects with stored ids after `after`, by stored id."""
    return [NamedObject(*row) for row in tx.rows(_OBJECTS, after=after, limit=limit)]


def named_among(tx: Connection, ids: Sequence[str]) -> set[str]:
    """Return those of the stored ids that are of objects in the store."""
    return {row[0] for row in tx.rows(_NAMED, ids=text_list(ids))}


def forget_unfinished(tx: Connection) -> None:
    """Delete the upload sessions and the quarantine, of which a backup has no files."""
    drop_quarantined_bodies(tx)
    for statement in _UNFINISHED:
        tx.execute(statement)
