"""Damaged blobs: mark and log them once, and treat them as absent until a push heals them.

To a client, a marked blob is absent: GET and HEAD give 404, it cannot be mounted, and a new
manifest cannot refer to it. So the next push sends its bytes again, and the object is switched to
them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.objects import damage
from registry.blobstore.base import ObjectDamaged, ObjectUnknown
from registry.blobstore.store import BlobReader
from registry.metadata.blobs.damage import DamagedImage, DamagedObject, damaged_objects, images_of
from registry.metadata.blobs.objects import KeptObject, Link

MAX_LISTED: Final = 100
"""The maximum number of damaged blobs that are listed, and of images listed for all of them."""

_log = logging.getLogger(__name__)
MOST_LOGGED: Final = 10_000
"""The maximum number of remembered wraps; when it is reached, all are forgotten."""


async def find_object_damage(
    reader: BlobReader, found: Link | KeptObject, body: bytes | None
) -> str | None:
    """Return the damage of an object: `ABSENT` if it has no bytes, `SIZE` (a wrong size), or None.

    `body` has the bytes of an inline object. Raise `StoreUnavailable` if the store failed.
    """
    stored_id, stored_size = found.stored_id, found.stored_size
    if found.is_inline:
        if body is None:
            return damage.ABSENT
        return None if len(body) == stored_size else damage.SIZE
    try:
        if not reader.check_cached(stored_id, stored_size):
            await reader.check(stored_id, stored_size)
    except ObjectUnknown:
        return damage.ABSENT
    except ObjectDamaged:
        return damage.SIZE
    return None


def list_damaged(
    tx: Connection, account_id: str
) -> Sequence[tuple[DamagedObject, Sequence[DamagedImage]]]:
    """Return an account's damaged blobs, sorted by digest, each with the images that need it.

    There are at most `MAX_LISTED` blobs and, in all, at most `MAX_LISTED` images.
    """
    objects = damaged_objects(tx, account_id, MAX_LISTED)
    if not objects:
        return []
    ids = [each.id for each in objects]
    images: dict[str, list[DamagedImage]] = defaultdict(list)
    for image in images_of(tx, account_id, ids, MAX_LISTED):
        images[image.object_id].append(image)
    return [(each, images[each.id]) for each in objects]


class BrokenWraps:
    """Logs data keys that do not unwrap, each once in this process."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str | None]] = set()

    def log(self, link: Link) -> None:
        """Log that the wrap of a link does not open, unless that is logged already."""
        wrap = link.stored_id, link.kms_key_id
        if wrap in self._logged:
            return
        if len(self._logged) >= MOST_LOGGED:
            self._logged.clear()
        self._logged.add(wrap)
        _log.error(
            "the wrapped data key of blob %s does not open under KMS key %s: its row was changed. "
            "Clients get 404 until the blob is pushed again",
            link.digest,
            link.kms_key_id,
        )
