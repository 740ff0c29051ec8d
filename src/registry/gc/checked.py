"""What is checked alike, blobs and the pieces of buckets, and what is told of those damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from cloudcore.db.base import Connection
from cloudcore.objects.book import Book, ObjectRow
from cloudcore.storage.piece_rows import PIECE_BOOK, HitObject, hit_by
from registry.counted import SCRUBBED_DAMAGED
from registry.metadata.blobs.book import BLOB_BOOK
from registry.metadata.blobs.damage import DamagedImage, images_of
from registry.services.context import ServiceContext

_IMAGES: Final = 500
_LOGGED: Final = 20
"""Images of a damaged blob that are named in the log."""
_log = logging.getLogger(__name__)


class FoundDamage(NamedTuple):
    """A damaged blob, and the images that need it."""

    digest: str
    problem: str
    is_new: bool
    """False if it was known before."""
    images: Sequence[DamagedImage]
    """The first 500."""

    def log(self) -> None:
        """Log it and the images that need it."""
        _log.error("blob %s is damaged (%s): clients get 404 until it is pushed again", *self[:2])
        for image in self.images[:_LOGGED]:
            _log.error("image %s needs the damaged blob %s", image, self.digest)
        if len(self.images) > _LOGGED:
            _log.error(
                "%d images need the damaged blob %s; 'entrepot scrub' names them",
                len(self.images),
                self.digest,
            )


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

    def log(self) -> None:
        """Log it and the object that it hits."""
        _log.error("%s is damaged (%s): reading fails until it is stored again", self, self.problem)


F = TypeVar("F")


@dataclass(frozen=True)
class Checked(Generic[F]):
    """One tenant of the check."""

    what: str
    book: Book
    describe: Callable[[Connection, ObjectRow, str, bool], F]
    """Return what is told of a damaged object: its problem, and whether that is new."""


def _blob(tx: Connection, row: ObjectRow, problem: str, is_new: bool) -> FoundDamage:  # noqa: FBT001
    images = images_of(tx, row.account_id, [row.id], _IMAGES)
    return FoundDamage(row.digest, problem, is_new, images)


def _piece(tx: Connection, row: ObjectRow, problem: str, is_new: bool) -> DamagedPiece:  # noqa: FBT001
    return DamagedPiece(row.id, problem, is_new, hit_by(tx, row.id))


BLOBS: Final = Checked("blobs", BLOB_BOOK, _blob)
PIECES: Final = Checked("pieces of buckets", PIECE_BOOK, _piece)


def tell_damage(ctx: ServiceContext, found: FoundDamage | DamagedPiece) -> None:
    """Log what is damaged; count it if it was not known."""
    if found.is_new:
        ctx.on_damage()
        ctx.count(SCRUBBED_DAMAGED, 1)
    found.log()
