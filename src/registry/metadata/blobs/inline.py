"""The bytes of inline objects: small blobs that are in the database instead of the store.

Inline bytes have a stored id and an encoding, plain or sealed, like bytes in the store. Each row
belongs to an object, live or in quarantine, and is written and deleted in the same transaction as
the object's row. So there are no orphans, and a backup of the database includes the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, exists, func, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import find_all, given, insert_new
from cloudcore.db.statement import Statement, listed, paged, text_list
from registry.metadata.control_tables import quarantined_objects
from registry.metadata.tables import blob_objects, inline_bytes

_b = inline_bytes.c
_o = blob_objects.c
_q = quarantined_objects.c


class InlineObject(NamedTuple):
    """An inline object and its bytes."""

    stored_id: str
    digest: str
    stored_size: int
    checksum: str | None
    """BLAKE3 of the stored bytes, in hex; None if their sha256 is the digest."""
    body: bytes | None
    """None if the bytes are lost."""


class StrayBody(NamedTuple):
    """Inline bytes that belong to no object."""

    stored_id: str
    stored_size: int


_ADD: Final = Statement(insert_new(inline_bytes, ("stored_id", "body")))
_READ: Final = Statement(select(_b.body).where(given(_b.stored_id)))

_DROP: Final = Statement(inline_bytes.delete().where(_b.stored_id.in_(listed("ids"))))
_DROP_QUARANTINED: Final = Statement(
    inline_bytes.delete().where(_b.stored_id.in_(select(_q.stored_id).where(_q.is_inline)))
)
_OBJECTS: Final = paged(
    select(_o.stored_id, _o.digest, _o.stored_size, _o.checksum, _b.body)
    .select_from(blob_objects)
    .outerjoin(inline_bytes, _b.stored_id == _o.stored_id)
    .where(_o.stored_id > bindparam("after"), _o.is_inline)
    .order_by(_o.stored_id)
)
_STRAYS: Final = paged(
    select(_b.stored_id, func.length(_b.body))
    .where(
        ~exists().where(_o.stored_id == _b.stored_id, _o.state != text("'shredded'")),
        ~exists().where(_q.stored_id == _b.stored_id),
    )
    .order_by(_b.stored_id)
)


def add_body(tx: Connection, stored_id: str, body: bytes) -> None:
    """Insert the stored bytes of an inline object, whose row the same transaction writes.

    Do nothing if the bytes exist: the transaction was repeated, and stored bytes never change.
    """
    tx.execute(_ADD, stored_id=stored_id, body=body)


def read_body(tx: Connection, stored_id: str) -> bytes | None:
    """Return the stored bytes of an inline object, or None if there are none."""
    row = tx.row(_READ, stored_id=stored_id)
    return None if row is None else bytes(row[0])


def drop_bodies(tx: Connection, stored_ids: Sequence[str]) -> None:
    """Delete the inline bytes with these stored ids; the caller deletes their objects in `tx`."""
    tx.execute(_DROP, ids=text_list(stored_ids))


def drop_quarantined_bodies(tx: Connection) -> None:
    """Delete the bytes of all inline objects in quarantine."""
    tx.execute(_DROP_QUARANTINED)


def inline_objects(tx: Connection, after: str, limit: int) -> list[InlineObject]:
    """Return up to `limit` inline objects with stored ids after `after`, sorted by stored id."""
    return find_all(tx, InlineObject, _OBJECTS, after=after, limit=limit)


def stray_bodies(tx: Connection, limit: int) -> list[StrayBody]:
    """Return up to `limit` inline bodies without an object, live or quarantined (a fault)."""
    return find_all(tx, StrayBody, _STRAYS, limit=limit)
