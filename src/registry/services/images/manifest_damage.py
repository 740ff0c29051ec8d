"""Detect manifests whose bytes do not match their digest; they give 404 until a PUT heals them.

Manifests are stored in the database, which does not always have checksums of its own. They are
small, so each GET and HEAD hashes what it reads. A client that gets 404 pushes the manifest again,
and every push compares the stored bytes with its own (`keep_body`). So no row marks damage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from cloudcore.threads import FairThread
from registry.errors import ManifestUnknown
from registry.metadata.images.manifests import SMALL_BYTES
from registry.oci.reference import Name

_MOST_LOGGED: Final = 1000
_HASHING: Final = FairThread("manifests", niceness=10)
"""Hashes large manifests, each in milliseconds. It releases the interpreter's lock meanwhile and
runs at a lower priority, so that requests are answered first."""

_log = logging.getLogger(__name__)


class ManifestDamage:
    """Logs and counts each damaged manifest once in a process."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    async def check(
        self, body: bytes, digest: str, name: Name, on_damage: Callable[[], None]
    ) -> None:
        """Check that `body` hashes to `digest`; `name` is a repository that has the manifest.

        Raise `ManifestUnknown` if it does not; a push of the manifest replaces the bytes.
        """
        if await _is_whole(body, digest, name):
            return
        if digest not in self._logged:
            if len(self._logged) >= _MOST_LOGGED:
                self._logged.clear()
            self._logged.add(digest)
            on_damage()
            _log.error(
                "manifest %s in %s is damaged in the database: clients get 404 until it is pushed"
                " again, from anywhere in the account",
                digest,
                name,
            )
        raise ManifestUnknown(
            f"the bytes of manifest {digest} in {name} are damaged; push it again", reference=digest
        )

    def note_healed(self, name: Name, digest: str) -> None:
        """Log that a push has replaced the bytes of a damaged manifest."""
        self._logged.discard(digest)
        _log.warning(
            "manifest %s was damaged in the database; a push to %s healed it", digest, name
        )


def is_small_and_whole(body: bytes, digest: str) -> bool:
    """Return True if `body` has at most `SMALL_BYTES` and hashes to `digest`; takes 0.1 ms."""
    return len(body) <= SMALL_BYTES and _hashes_to(body, digest)


async def _is_whole(body: bytes, digest: str, name: Name) -> bool:
    """Return True if `body` hashes to `digest`; a large one is hashed in a thread."""
    if len(body) <= SMALL_BYTES:
        return _hashes_to(body, digest)
    return await _HASHING.run(name.handle, _hashes_to, body, digest)


def _hashes_to(body: bytes, digest: str) -> bool:
    # Every pull of a manifest calls this; it takes half the time of `digest_of`.
    return digest == f"sha256:{sha256(body).hexdigest()}"
