"""Manifests whose stored bytes are not those of their digest: not given out, told, healed by a PUT.

The bytes lie in the database, which has no checksum of its own everywhere. They are small, so each
GET and HEAD hashes what it read. Who hears 404 pushes the manifest again, and every push compares
what is kept with what it brings (`keep_body`). So no mark is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from registry.errors import ManifestUnknown

INLINE_BYTES: Final = 64 * 1024
"""The largest manifest that is hashed on the event loop, within a tenth of a millisecond or so."""
_MOST_TOLD: Final = 1000

_log = logging.getLogger(__name__)


class ManifestDamage:
    """What one process knows of damaged manifests: each is told once, and counted."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    async def check(
        self, body: bytes, digest: str, where: object, on_damage: Callable[[], None]
    ) -> None:
        """Check that `body` hashes to its sha256; `where` is the repository's name.

        Raises:
            ManifestUnknown: it does not, and a push of the manifest will replace it.

        """
        if await is_whole(body, digest):
            return
        if digest not in self._told:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told.add(digest)
            on_damage()
            _log.error(
                "manifest %s in %s is damaged in the database: clients get 404 until it is pushed"
                " again, from anywhere in the account",
                digest,
                where,
            )
        raise damaged(digest, where)

    def note_healed(self, where: object, digest: str) -> None:
        """Log that a push brought the bytes of a damaged manifest."""
        self._told.discard(digest)
        _log.warning(
            "manifest %s was damaged in the database; a push to %s healed it", digest, where
        )


def is_small_and_whole(body: bytes, digest: str) -> bool:
    """Return whether `body` is small and hashes to its sha256: `is_whole` of most, at once."""
    return len(body) <= INLINE_BYTES and _hashes_to(body, digest)


async def is_whole(body: bytes, digest: str) -> bool:
    """Return whether `body` hashes to its sha256; a large one is hashed in a thread."""
    if len(body) <= INLINE_BYTES:
        return _hashes_to(body, digest)
    return await asyncio.to_thread(_hashes_to, body, digest)


def _hashes_to(body: bytes, digest: str) -> bool:
    # Each pull of a manifest comes by here: half the time of `digest_of`.
    return digest == f"sha256:{sha256(body).hexdigest()}"


def damaged(digest: str, where: object) -> ManifestUnknown:
    """Return what clients are told of a damaged manifest."""
    return ManifestUnknown(
        f"the bytes of manifest {digest} in {where} are damaged; push it again", reference=digest
    )
