"""The book of pieces, whose bytes never change: a new object of the same key has others."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, bindparam, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.objects.book import Book
from cloudcore.storage.tables import (
    storage_buckets,
    storage_objects,
    storage_pieces,
    storage_uploads,
)

_b, _o, _u, _p = storage_buckets.c, storage_objects.c, storage_uploads.c, storage_pieces.c
_ALGORITHM: Final[ColumnElement[str]] = literal_column("'sha256:'")
_IS_NEEDED: Final[ColumnElement[bool]] = literal_column(
    "(storage_pieces.condemned_at IS NULL AND storage_pieces.encoding <> 'shredded')"
)

_DIGEST: Final = _ALGORITHM.concat(_p.sha256)
PIECE_BOOK: Final = Book(
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
    has_bytes=_IS_NEEDED,
    is_stored=_p.body.is_(None),
)

_NEEDED: Final = Statement(select(_p.id).where(_p.id == bindparam("piece_id"), _IS_NEEDED))
_OBJECT_OF: Final = Statement(
    select(_b.name, _o.key, literal_column("0"))
    .select_from(storage_pieces)
    .join(storage_objects, _o.id == _p.object_id)
    .join(storage_buckets, _b.id == _o.bucket_id)
    .where(_p.id == bindparam("piece_id"))
)
_UPLOAD_OF: Final = Statement(
    select(_b.name, _u.key, literal_column("1"))
    .select_from(storage_pieces)
    .join(storage_uploads, _u.id == _p.upload_id)
    .join(storage_buckets, _b.id == _u.bucket_id)
    .where(_p.id == bindparam("piece_id"))
)


class HitObject(NamedTuple):
    """An object, or an upload of one, whose bytes are damaged."""

    bucket: str
    key: str
    is_upload: bool

    def __str__(self) -> str:
        """Return ``BUCKET/KEY``, which may have any characters."""
        what = "upload of " if self.is_upload else ""
        return f"{what}{self.bucket}/{self.key}"


def is_needed(tx: Connection, piece_id: str) -> bool:
    """Return False if a piece was condemned: its bytes may be gone before its row is."""
    return tx.row(_NEEDED, piece_id=piece_id) is not None


def hit_by(tx: Connection, piece_id: str) -> HitObject | None:
    """Return the object or the upload that needs a piece; None if none does."""
    row = tx.row(_OBJECT_OF, piece_id=piece_id) or tx.row(_UPLOAD_OF, piece_id=piece_id)
    return None if row is None else HitObject(row[0], bytes(row[1]).decode(), bool(row[2]))
