"""Check the pieces of buckets as blobs are checked: rows to check, and marks of damaged ones."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database
from cloudcore.storage import piece_checks
from cloudcore.storage.piece_checks import CheckedPiece, HitObject
from registry.counted import SCRUBBED_DAMAGED
from registry.gc.object_check import FoundDamage, Marks
from registry.metadata.collector.audit import ObjectRow
from registry.services.context import ServiceContext

_PAGE: Final = 500
EVER: Final = 1 << 62
"""A moment after every other."""
_LOGGED: Final = 20
"""Images of a damaged blob that are named in the log."""
_log = logging.getLogger(__name__)


class DamagedPiece(NamedTuple):
    """A damaged piece, and the object that needs it."""

    piece_id: str
    problem: str
    is_new: bool
    """False if it was known before."""
    hit: HitObject | None
    """None if it was deleted or overwritten meanwhile."""

    def __str__(self) -> str:
        """Return which piece it is and what it hits, on one line."""
        hit = "" if self.hit is None else f" of {str(self.hit)!r}"
        return f"piece {self.piece_id}{hit}"


class MarksOfPieces(Marks[DamagedPiece]):
    """Those of pieces."""

    def confirm(self, tx: Connection, rows: Sequence[ObjectRow], now: int) -> None:
        """Note when pieces were verified (`Marks.confirm`)."""
        for row in rows:
            piece_checks.confirm(tx, row.id, row.verified_at, row.damage, now)

    def is_unchanged(self, tx: Connection, row: ObjectRow) -> bool:
        """Look whether a piece is still needed (`Marks.is_unchanged`)."""
        return piece_checks.is_unchanged(tx, row.id, row.verified_at)

    def mark(self, tx: Connection, row: ObjectRow, found: str, now: int) -> bool:
        """Mark a piece as damaged (`Marks.mark`)."""
        return piece_checks.mark(tx, row.id, row.verified_at, found, now)

    def describe(
        self, tx: Connection, row: ObjectRow, problem: str, *, is_new: bool
    ) -> DamagedPiece:
        """Tell which object needs a damaged piece (`Marks.describe`)."""
        return DamagedPiece(row.id, problem, is_new, piece_checks.hit_by(tx, row.id))


PIECES: Final = MarksOfPieces()


def due_pieces(
    tx: Connection, verified_before: int, after: tuple[int, str], limit: int
) -> list[ObjectRow]:
    """Return a page of the pieces that are due (`piece_checks.due_pieces`)."""
    return [_row(each) for each in piece_checks.due_pieces(tx, verified_before, after, limit)]


async def all_pieces(database: Database, verified_before: int = EVER) -> AsyncIterator[ObjectRow]:
    """Yield the pieces of all accounts that were last verified before a moment."""
    after = ""
    while page := await database.read(piece_checks.all_pieces, verified_before, after, _PAGE):
        for piece in page:
            yield _row(piece)
        after = page[-1].id


def _row(piece: CheckedPiece) -> ObjectRow:
    return ObjectRow(
        id=piece.id,
        digest=f"sha256:{piece.sha256}",
        account_id=piece.account_id,
        stored_id=piece.id,
        stored_size=piece.stored_size,
        encoding=piece.encoding,
        is_inline=piece.is_inline,
        checksum=piece.stored_checksum,
        verified_at=piece.verified_at,
        damage=piece.damage,
        body=piece.body,
    )


def tell_damage(ctx: ServiceContext, found: FoundDamage) -> None:
    """Log a damaged blob and the images that need it; count it if it was not known."""
    if found.is_new:
        ctx.on_damage()
        ctx.count(SCRUBBED_DAMAGED, 1)
    _log.error("blob %s is damaged (%s): clients get 404 until it is pushed again", *found[:2])
    for image in found.images[:_LOGGED]:
        _log.error("image %s needs the damaged blob %s", image, found.digest)
    if len(found.images) > _LOGGED:
        _log.error(
            "%d images need the damaged blob %s; 'entrepot scrub' names them",
            len(found.images),
            found.digest,
        )


def tell_damaged_piece(ctx: ServiceContext, found: DamagedPiece) -> None:
    """Log a damaged piece and the object that it hits; count it if it was not known."""
    if found.is_new:
        ctx.on_damage()
        ctx.count(SCRUBBED_DAMAGED, 1)
    _log.error("%s is damaged (%s): reading fails until it is stored again", found, found.problem)
