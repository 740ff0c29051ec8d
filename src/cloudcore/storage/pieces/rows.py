"""Queries of pieces: the bytes of objects, of parts of uploads, and condemned bytes.

The bytes of a piece never change: a new object with the same key has other pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, ColumnElement, Table, bindparam, func, literal_column, null, select
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, bound, columns_of, count, find_all, find_one, given, total
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.objects.stored_rows import StoredRows
from cloudcore.storage.bucket_rows import add_bytes, subtract_bytes
from cloudcore.storage.needs import StoredPiece
from cloudcore.storage.object_rows import ObjectChecksum, StoredObject
from cloudcore.storage.tables import (
    storage_buckets,
    storage_objects,
    storage_pieces,
    storage_uploads,
)

_b, _p = storage_buckets.c, storage_pieces.c


class Piece(NamedTuple):
    """The bytes of an object, or of a part of it."""

    number: int
    md5: str
    """In hex."""
    checksum: str | None
    """In base64, by the checksum algorithm of the object or upload; None without one."""
    stored: StoredPiece
    created_at: int
    damage: str | None = None
    """The damage that the scrub or fsck has found in the bytes (`objects.damage`), or None."""


class ListedPiece(NamedTuple):
    """A piece of an object, without its bytes and keys."""

    number: int
    size: int
    checksum: str | None

    def checksum_of(self, whole: StoredObject) -> ObjectChecksum | None:
        """Return the checksum of the piece, given its object `whole`.

        None if the object or the piece has no checksum.
        """
        if whole.checksum is None or self.checksum is None:
            return None
        return whole.checksum._replace(value=self.checksum)


class Condemned(NamedTuple):
    """A piece whose object or upload was deleted or replaced, and whose bytes are to be deleted."""

    id: str
    account_id: str
    is_inline: bool


_STORED: Final = StoredPiece._fields
_COLUMNS: Final = ("number", "md5", "checksum", "created_at", "damage", *_STORED)


_OF_OBJECT: Final = given(_p.object_id, _p.account_id)
_OF_UPLOAD: Final = given(_p.upload_id, _p.account_id)
_LISTED_PART: Final = [null() if name in ("body", "wrapped") else _p[name] for name in _COLUMNS]

_ADD: Final = Statement(
    insert(storage_pieces).values(
        bound((*_COLUMNS, "account_id", "object_id", "upload_id", "condemned_at", "verified_at"))
    )
)
_OF_AN_OBJECT: Final = Statement(
    columns_of(storage_pieces, _COLUMNS).where(_OF_OBJECT).order_by(_p.number)
)
_BETWEEN: Final = Statement(
    columns_of(storage_pieces, _COLUMNS)
    .where(_OF_OBJECT, _p.number >= bindparam("first"), _p.number <= bindparam("last"))
    .order_by(_p.number)
)
_IS_PLAIN: Final = paged(
    select(_p.number).where(_OF_OBJECT, _p.wrapped.is_(None)).order_by(_p.number)
)
_LIST_PIECES: Final = Statement(
    columns_of(storage_pieces, ListedPiece._fields).where(_OF_OBJECT).order_by(_p.number)
)
_SIZES: Final = Statement(select(_p.number, _p.size).where(_OF_OBJECT).order_by(_p.number))
_FIND_PART: Final = Statement(
    columns_of(storage_pieces, _COLUMNS).where(_OF_UPLOAD, given(_p.number))
)
_LIST_PARTS: Final = paged(
    select(*_LISTED_PART).where(_OF_UPLOAD, _p.number > bindparam("after")).order_by(_p.number)
)
_COUNT_PARTS: Final = Statement(select(func.count()).select_from(storage_pieces).where(_OF_UPLOAD))
_CONDEMNING: Final[dict[str, Any]] = {
    "object_id": null(),
    "upload_id": null(),
    "condemned_at": bindparam("now"),
}
_CONDEMN_OBJECT: Final = Statement(storage_pieces.update().where(_OF_OBJECT).values(_CONDEMNING))
_CONDEMN_PARTS: Final = Statement(storage_pieces.update().where(_OF_UPLOAD).values(_CONDEMNING))
_CONDEMN_PART: Final = Statement(
    storage_pieces.update().where(_OF_UPLOAD, _p.number == bindparam("part")).values(_CONDEMNING)
)
_MOVE: Final = Statement(
    storage_pieces.update()
    .where(_p.id.in_(listed("ids")), _OF_UPLOAD)
    .values(object_id=bindparam("object_id"), upload_id=null())
)
_LIST_CONDEMNED: Final = paged(
    select(_p.id, _p.account_id, _p.body.is_not(None))
    .where(sql("condemned_at IS NOT NULL"), _p.condemned_at < bindparam("before"))
    .order_by(_p.condemned_at)
)
_FORGET: Final = Statement(
    storage_pieces.delete()
    .where(_p.id.in_(listed("ids")), sql("condemned_at IS NOT NULL"))
    .returning(_p.account_id, _p.size)
)
_OWNED: Final = Statement(select(_p.id).where(_p.id.in_(listed("ids"))))
_HAS_PARTS: Final = Statement(select(total(_p.size)).where(_OF_UPLOAD))


def are_sealed(tx: Connection, account_id: str, object_id: str) -> bool:
    """Return True if all pieces of an object are sealed."""
    return not tx.rows(_IS_PLAIN, account_id=account_id, object_id=object_id, limit=1)


def add_piece(
    tx: Connection,
    account_id: str,
    piece: Piece,
    *,
    object_id: str | None = None,
    upload_id: str | None = None,
) -> None:
    """Insert a piece of an object or of an upload, and count its bytes for the account."""
    row = piece._asdict() | piece.stored._asdict()
    del row["stored"]
    tx.execute(
        _ADD,
        **row,
        account_id=account_id,
        object_id=object_id,
        upload_id=upload_id,
        condemned_at=None,
        verified_at=piece.created_at,
    )
    add_bytes(tx, account_id, piece.stored.id, piece.stored.size)


def pieces_of(tx: Connection, account_id: str, object_id: str) -> list[Piece]:
    """Return the pieces of an object, sorted by number."""
    return find_all(tx, _piece, _OF_AN_OBJECT, account_id=account_id, object_id=object_id)


def sizes_of(tx: Connection, account_id: str, object_id: str) -> list[tuple[int, int]]:
    """Return (number, size) of each piece of an object, sorted by number."""
    rows = tx.rows(_SIZES, account_id=account_id, object_id=object_id)
    return [(row[0], row[1]) for row in rows]


def list_pieces(tx: Connection, account_id: str, object_id: str) -> list[ListedPiece]:
    """Return the pieces of an object, sorted by number, without their bytes and keys."""
    return find_all(tx, ListedPiece, _LIST_PIECES, account_id=account_id, object_id=object_id)


def pieces_between(
    tx: Connection, account_id: str, object_id: str, first: int, last: int
) -> list[Piece]:
    """Return the pieces of an object numbered `first` to `last`, sorted by number."""
    of = {"account_id": account_id, "object_id": object_id}
    return find_all(tx, _piece, _BETWEEN, **of, first=first, last=last)


def find_part(tx: Connection, account_id: str, upload_id: str, number: int) -> Piece | None:
    """Return a part of an upload, or None."""
    of = {"account_id": account_id, "upload_id": upload_id}
    return find_one(tx, _piece, _FIND_PART, **of, number=number)


def list_parts(
    tx: Connection, account_id: str, upload_id: str, after: int, limit: int
) -> list[Piece]:
    """Return up to `limit` parts numbered above `after`, without bytes and keys, in order."""
    of = {"account_id": account_id, "upload_id": upload_id}
    return find_all(tx, _piece, _LIST_PARTS, **of, after=after, limit=limit)


def count_parts(tx: Connection, account_id: str, upload_id: str) -> int:
    """Count the parts of an upload, of which there are at most 10,000."""
    return count(tx, _COUNT_PARTS, account_id=account_id, upload_id=upload_id)


def upload_bytes(tx: Connection, account_id: str, upload_id: str) -> int:
    """Return the bytes of all parts of an upload."""
    return count(tx, _HAS_PARTS, account_id=account_id, upload_id=upload_id)


def condemn_object(tx: Connection, account_id: str, object_id: str, now: int) -> None:
    """Condemn the pieces of an object: mark them for deletion."""
    tx.execute(_CONDEMN_OBJECT, account_id=account_id, object_id=object_id, now=now)


def condemn_parts(tx: Connection, account_id: str, upload_id: str, now: int) -> None:
    """Condemn all parts of an upload."""
    tx.execute(_CONDEMN_PARTS, account_id=account_id, upload_id=upload_id, now=now)


def condemn_part(tx: Connection, account_id: str, upload_id: str, number: int, now: int) -> None:
    """Condemn the part of an upload with this number, if it exists."""
    tx.execute(_CONDEMN_PART, account_id=account_id, upload_id=upload_id, part=number, now=now)


def move_parts(
    tx: Connection, account_id: str, upload_id: str, piece_ids: Sequence[str], object_id: str
) -> int:
    """Move parts of an upload to an object; return the number of parts moved."""
    return tx.execute(
        _MOVE,
        account_id=account_id,
        upload_id=upload_id,
        ids=text_list(piece_ids),
        object_id=object_id,
    )


def list_condemned(tx: Connection, before: int, limit: int) -> list[Condemned]:
    """Return up to `limit` pieces condemned before a time, of any account, oldest first."""
    return find_all(tx, condemned_of, _LIST_CONDEMNED, before=before, limit=limit)


def forget_condemned(tx: Connection, piece_ids: Sequence[str]) -> None:
    """Delete the rows of condemned pieces whose bytes were deleted, and lower the usage."""
    sizes: Counter[str] = Counter()
    for account_id, size in tx.rows(_FORGET, ids=text_list(piece_ids)):
        sizes[account_id] += size
    subtract_bytes(tx, sizes)


def owned(tx: Connection, piece_ids: Sequence[str]) -> Collection[str]:
    """Return those of `piece_ids` that have rows, even condemned ones."""
    return {row[0] for row in tx.rows(_OWNED, ids=text_list(piece_ids))}


def condemned_of(piece_id: str, account_id: str, is_inline: int) -> Condemned:
    """Convert a row to a condemned piece; SQLite returns numbers instead of booleans."""
    return Condemned(piece_id, account_id, bool(is_inline))


def _piece(number: int, md5: str, checksum: str, created_at: int, damage: str, *rest: Any) -> Piece:  # noqa: ANN401 - columns
    return Piece(number, md5, checksum, StoredPiece(*rest), created_at, damage)


_ALGORITHM: Final[ColumnElement[str]] = literal_column("'sha256:'")
_IS_NEEDED: Final[ColumnElement[bool]] = literal_column(
    "(storage_pieces.condemned_at IS NULL AND storage_pieces.encoding <> 'shredded')"
)

_DIGEST: Final = _ALGORITHM.concat(_p.sha256)
PIECE_ROWS: Final = StoredRows(
    storage_pieces,
    select(
        _p.id,
        _DIGEST,
        _p.account_id,
        _p.id.label("stored_id"),
        _p.stored_size,
        _p.encoding,
        _p.body.is_not(None),
        _p.stored_checksum,
        _p.verified_at,
        _p.damage,
        _p.body,
    ),
    stored_id=_p.id,
    digest=_DIGEST,
    checksum=_p.stored_checksum,
    has_bytes=_IS_NEEDED,
    is_stored=_p.body.is_(None),
)

_NEEDED: Final = Statement(select(_p.id).where(_p.id == bindparam("piece_id"), _IS_NEEDED))


def _owner(owners: Table, owner: Column[Any], is_upload: ColumnElement[int]) -> Statement:
    """Build the query for the object or upload to which a piece belongs."""
    return Statement(
        select(_b.name, owners.c.key, is_upload)
        .select_from(storage_pieces)
        .join(owners, owners.c.id == owner)
        .join(storage_buckets, _b.id == owners.c.bucket_id)
        .where(_p.id == bindparam("piece_id"))
    )


_OBJECT_OF: Final = _owner(storage_objects, _p.object_id, ZERO)
_UPLOAD_OF: Final = _owner(storage_uploads, _p.upload_id, ONE)


class PieceOwner(NamedTuple):
    """The object or the upload to which a piece belongs."""

    bucket: str
    key: str
    is_upload: bool

    def __str__(self) -> str:
        """Return ``BUCKET/KEY``; the key may have any characters."""
        what = "upload of " if self.is_upload else ""
        return f"{what}{self.bucket}/{self.key}"


def is_needed(tx: Connection, piece_id: str) -> bool:
    """Return False if a piece was condemned, shredded or erased: its bytes may be deleted."""
    return tx.row(_NEEDED, piece_id=piece_id) is not None


def find_piece_owner(tx: Connection, piece_id: str) -> PieceOwner | None:
    """Return the object or upload to which a piece belongs, or None if it was condemned."""
    row = tx.row(_OBJECT_OF, piece_id=piece_id) or tx.row(_UPLOAD_OF, piece_id=piece_id)
    return None if row is None else PieceOwner(row[0], bytes(row[1]).decode(), bool(row[2]))
