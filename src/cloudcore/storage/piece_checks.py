"""Pieces whose stored bytes are verified, in the order of that, and marks of damaged ones.

`verified_at` changes when the bytes are verified, so a reader that has found them damaged before
cannot mark them since. The bytes of a piece never change: a new object of the same key has others.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, bindparam, case, func, literal_column, select, tuple_
from sqlalchemy import text as sql

from cloudcore.db.base import Connection, Row
from cloudcore.db.statement import Statement, page
from cloudcore.storage.tables import (
    storage_buckets,
    storage_objects,
    storage_pieces,
    storage_uploads,
)

FIRST: Final = (-1, "")
"""Before every piece."""

_b, _o, _u, _p = storage_buckets.c, storage_objects.c, storage_uploads.c, storage_pieces.c


class CheckedPiece(NamedTuple):
    """A piece, with what its stored bytes are compared with."""

    id: str
    account_id: str
    sha256: str
    stored_size: int
    encoding: str
    stored_checksum: str | None
    verified_at: int
    damage: str | None
    is_inline: bool
    body: bytes | None
    """The stored bytes of an inline one."""


class HitObject(NamedTuple):
    """An object, or an upload of one, whose bytes are damaged."""

    bucket: str
    key: str
    is_upload: bool

    def __str__(self) -> str:
        """Return ``BUCKET/KEY``, which may have any characters."""
        what = "upload of " if self.is_upload else ""
        return f"{what}{self.bucket}/{self.key}"


class Totals(NamedTuple):
    """How many pieces there are, and how many of them were verified of late."""

    pieces: int
    stored_bytes: int
    verified: int
    verified_bytes: int
    damaged: int


def _pieces() -> Select[Any]:
    names = (name for name in CheckedPiece._fields if name not in ("is_inline", "body"))
    return select(*(_p[name] for name in names), _p.body.is_not(None), _p.body)


_IS_OWNED: Final = sql("condemned_at IS NULL AND encoding <> 'shredded'")
_BEFORE: Final = _p.verified_at < bindparam("verified_before")
_DUE: Final = Statement(
    page(
        _pieces()
        .where(
            sql("damage IS NULL AND condemned_at IS NULL AND encoding <> 'shredded'"),
            _BEFORE,
            tuple_(_p.verified_at, _p.id) > tuple_(bindparam("after_at"), bindparam("after_id")),
        )
        .order_by(_p.verified_at, _p.id)
    )
)
_ALL: Final = Statement(
    page(_pieces().where(_IS_OWNED, _BEFORE, _p.id > bindparam("after")).order_by(_p.id))
)
_SAME: Final = (_p.id == bindparam("piece_id"), _p.verified_at == bindparam("verified_before"))
_IS_THERE: Final = Statement(select(_p.id).where(*_SAME, _IS_OWNED))
_MARK: Final = Statement(
    storage_pieces.update()
    .where(*_SAME, _IS_OWNED, _p.damage.is_(None))
    .values(damage=bindparam("found"), damaged_at=bindparam("now"))
)
_CONFIRM: Final = Statement(
    storage_pieces.update()
    .where(*_SAME, func.coalesce(_p.damage, sql("''")) == bindparam("damage_before"))
    .values(damage=sql("NULL"), damaged_at=sql("NULL"), verified_at=bindparam("now"))
)
_zero: Final[ColumnElement[int]] = literal_column("0")
_is_verified = _p.damage.is_(None) & (_p.verified_at >= bindparam("since"))
_TOTALS: Final = Statement(
    select(
        func.count(),
        func.coalesce(func.sum(_p.stored_size), _zero),
        func.coalesce(func.sum(case((_is_verified, literal_column("1")), else_=_zero)), _zero),
        func.coalesce(func.sum(case((_is_verified, _p.stored_size), else_=_zero)), _zero),
        func.count(_p.damage),
    ).where(_IS_OWNED)
)
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


def due_pieces(
    tx: Connection, verified_before: int, after: tuple[int, str], limit: int
) -> list[CheckedPiece]:
    """Return a page of undamaged pieces last verified before a moment, the oldest first.

    `after` is the `verified_at` and id of the last one of the page before; at first `FIRST`.
    """
    rows = tx.rows(
        _DUE, verified_before=verified_before, after_at=after[0], after_id=after[1], limit=limit
    )
    return [_piece(row) for row in rows]


def all_pieces(tx: Connection, verified_before: int, after: str, limit: int) -> list[CheckedPiece]:
    """Return a page of pieces last verified before a moment, damaged ones too, by id."""
    rows = tx.rows(_ALL, verified_before=verified_before, after=after, limit=limit)
    return [_piece(row) for row in rows]


def totals(tx: Connection, since: int) -> Totals:
    """Count the pieces, and those that were verified `since`. Reads every row."""
    row = tx.row(_TOTALS, since=since)
    return Totals(0, 0, 0, 0, 0) if row is None else Totals(*map(int, row))


def is_unchanged(tx: Connection, piece_id: str, verified_at: int) -> bool:
    """Return True if a piece is still needed, and was not verified since."""
    return tx.row(_IS_THERE, piece_id=piece_id, verified_before=verified_at) is not None


def mark(tx: Connection, piece_id: str, verified_at: int, damage: str, now: int) -> bool:
    """Mark a piece as damaged; return False if it is already, or gone, or was verified since."""
    seen = {"piece_id": piece_id, "verified_before": verified_at}
    return tx.execute(_MARK, **seen, found=damage, now=now) == 1


def confirm(tx: Connection, piece_id: str, verified_at: int, damage: str | None, now: int) -> None:
    """Remove the mark of a piece whose bytes are whole; they were verified `now`.

    Change nothing if it was verified or marked since `verified_at` and `damage` were read.
    """
    tx.execute(
        _CONFIRM,
        piece_id=piece_id,
        verified_before=verified_at,
        damage_before=damage or "",
        now=now,
    )


def hit_by(tx: Connection, piece_id: str) -> HitObject | None:
    """Return the object or the upload that needs a piece; None if none does."""
    row = tx.row(_OBJECT_OF, piece_id=piece_id) or tx.row(_UPLOAD_OF, piece_id=piece_id)
    return None if row is None else HitObject(row[0], bytes(row[1]).decode(), bool(row[2]))


def _piece(row: Row) -> CheckedPiece:
    piece = CheckedPiece(*row)
    return piece._replace(is_inline=bool(piece.is_inline))
