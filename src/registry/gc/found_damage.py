"""Log and count damaged blobs, and pieces of buckets, that background work has found."""

from __future__ import annotations

import logging
from typing import Final

from registry.counted import SCRUBBED_DAMAGED
from registry.gc.object_check import FoundDamage
from registry.gc.piece_marks import DamagedPiece
from registry.services.context import ServiceContext

_LOGGED: Final = 20
"""Images of a damaged blob that are named in the log."""

_log = logging.getLogger(__name__)


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
