"""The KMS keys of pieces: count the pieces under a KMS key, rewrap pieces, and shred pieces.

Each piece has one data key, wrapped under one KMS key. So only that KMS key opens the piece, and
deleting the KMS key makes the piece unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Column,
    Table,
    bindparam,
    column,
    func,
    null,
    select,
    table,
)
from sqlalchemy import text as sql

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, count, find_all, given, total
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.storage.needs import SHREDDED, StoredPiece
from cloudcore.storage.pieces.rows import Condemned, condemned_of
from cloudcore.storage.tables import (
    storage_buckets,
    storage_objects,
    storage_pieces,
    storage_uploads,
)

_b, _o, _u, _p = storage_buckets.c, storage_objects.c, storage_uploads.c, storage_pieces.c
_keys = table("kms_keys", column("id"), column("state"))
"""The KMS's own table, to which pieces refer."""
_IS_SEALED: Final = sql("encoding = 'sealed'")


class KeyedPieces(NamedTuple):
    """The number of pieces in buckets that a KMS key seals, their size and their objects."""

    pieces: int
    size: int
    """In bytes."""
    objects: int


# An index finds the least encoding of a key's pieces in one lookup, even if millions of them are
# shredded. With a join, PostgreSQL would read all pieces.
_least: Final = select(func.min(_p.encoding)).where(_p.kms_key_id == _keys.c.id).scalar_subquery()
_CLOSED_KEY: Final = paged(
    select(_keys.c.id).where(_keys.c.state == sql("'deleted'"), _least == sql("'sealed'"))
)
_LIST_CLOSED: Final = paged(
    select(_p.id, _p.account_id, _p.body.is_not(None)).where(given(_p.kms_key_id), _IS_SEALED)
)
_SHRED: Final = Statement(
    storage_pieces.update()
    .where(_p.id.in_(listed("ids")), _IS_SEALED)
    .values(
        encoding=bindparam("shredded"),
        stored_size=ZERO,
        stored_checksum=sql("NULL"),
        damage=sql("NULL"),
        body=bindparam("nothing"),
        wrapped=bindparam("nothing"),
    )
)
_REWRAP: Final = Statement(
    storage_pieces.update()
    .where(
        _p.id == bindparam("piece_id"),
        given(_p.account_id),
        _p.kms_key_id == bindparam("before"),
        _IS_SEALED,
    )
    .values(kms_key_id=bindparam("new_key_id"), wrapped=bindparam("wrapped"))
)
_WITHOUT_BODY: Final = [null() if name == "body" else _p[name] for name in StoredPiece._fields]


def _behind(owners: Table, owner: Column[Any], position: Column[Any]) -> Statement:
    """Build a query for a bucket's pieces after a position (owner, number), sorted by position.

    `position` is the column that identifies an owner: the key of an object, the id of an upload.
    """
    return paged(
        select(position, _p.number, *_WITHOUT_BODY)
        .select_from(owners)
        .join(storage_pieces, owner == owners.c.id)
        .where(
            given(owners.c.bucket_id, owners.c.account_id),
            position >= bindparam("after"),
            (position > bindparam("after")) | (_p.number > bindparam("number")),
        )
        .order_by(position, _p.number)
    )


_OF_OBJECTS: Final = _behind(storage_objects, _p.object_id, _o.key)
_OF_UPLOADS: Final = _behind(storage_uploads, _p.upload_id, _u.id)
_UNDER: Final = (
    select(_p.object_id, _p.size)
    .where(given(_p.kms_key_id, _p.account_id), sql("condemned_at IS NULL"))
    .limit(bindparam("most"))
    .offset(ZERO)
    .subquery("under")
)
_COUNT_UNDER: Final = Statement(
    select(
        func.count(),
        total(_UNDER.c.size),
        func.count(_UNDER.c.object_id.distinct()),
    )
)
_IS_BOUND: Final = given(_b.kms_key_id, _b.account_id)
_BOUND: Final = paged(select(_b.id, _b.name).where(_IS_BOUND).order_by(_b.name))
_COUNT_BOUND: Final = Statement(select(func.count()).select_from(storage_buckets).where(_IS_BOUND))


def list_under_deleted_key(tx: Connection, limit: int) -> list[Condemned]:
    """Return up to `limit` pieces, not yet shredded, of one deleted KMS key of any account."""
    key = tx.row(_CLOSED_KEY, limit=1)
    if key is None:
        return []
    return find_all(tx, condemned_of, _LIST_CLOSED, kms_key_id=key[0], limit=limit)


def shred(tx: Connection, piece_ids: Sequence[str]) -> None:
    """Erase the data keys and inline bytes of these pieces, whose stored bytes were deleted."""
    tx.execute(_SHRED, ids=text_list(piece_ids), shredded=SHREDDED, nothing=b"")


def rewrap(
    tx: Connection, account_id: str, piece: StoredPiece, kms_key_id: str, wrapped: bytes
) -> bool:
    """Replace a piece's wrap; return False if the piece is gone, shredded or under another key."""
    keys = {"before": piece.kms_key_id, "new_key_id": kms_key_id, "wrapped": wrapped}
    return tx.execute(_REWRAP, account_id=account_id, piece_id=piece.id, **keys) == 1


def list_pieces(
    tx: Connection,
    account_id: str,
    bucket_id: str,
    after: tuple[str, int],
    limit: int,
    *,
    of_objects: bool,
) -> list[tuple[tuple[str, int], StoredPiece]]:
    """Return (position, piece) of up to `limit` pieces of a bucket, without inline bytes.

    With `of_objects`, return the pieces of objects, whose position is (key, number); else the parts
    of uploads, whose position is (upload id, number). The pieces are sorted by position, and come
    after the position `after`.
    """
    position, number = after
    rows = tx.rows(
        _OF_OBJECTS if of_objects else _OF_UPLOADS,
        account_id=account_id,
        bucket_id=bucket_id,
        after=position.encode() if of_objects else position,
        number=number,
        limit=limit,
    )
    return [
        ((bytes(row[0]).decode() if of_objects else row[0], row[1]), StoredPiece(*row[2:]))
        for row in rows
    ]


def count_under(tx: Connection, account_id: str, kms_key_id: str, most: int) -> KeyedPieces:
    """Count the pieces under a KMS key, even a deleted one; stop counting at `most` pieces."""
    row = tx.row(_COUNT_UNDER, account_id=account_id, kms_key_id=kms_key_id, most=most)
    assert row is not None
    return KeyedPieces(*map(int, row))


def bound_buckets(
    tx: Connection, account_id: str, kms_key_id: str, limit: int
) -> tuple[int, list[tuple[str, str]]]:
    """Return how many buckets are bound to a KMS key, and (id, name) of the first, by name."""
    of = {"account_id": account_id, "kms_key_id": kms_key_id}
    rows = tx.rows(_BOUND, **of, limit=limit)
    return count(tx, _COUNT_BOUND, **of), [(row[0], row[1]) for row in rows]
