"""Detect manifests whose stored bytes do not match their digest; answer 404 until a PUT heals them.

Manifests are stored in the database, which does not always have checksums of its own. They are
small, so each GET and HEAD hashes what it reads. A client that gets 404 pushes the manifest again,
and every push compares the stored bytes with its own (`keep_body`). So damage needs no row.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Final

from registry.errors import ManifestUnknown
from registry.oci.reference import Name

INLINE_BYTES: Final = 64 * 1024
"""The largest manifest that is hashed on the event loop; takes about 0.1 ms."""
_MOST_LOGGED: Final = 1000
_HASHING: Final = ThreadPoolExecutor(2, "manifests")
"""Threads of their own: a hash of megabytes lets the interpreter go, and takes milliseconds."""

_log = logging.getLogger(__name__)


class ManifestDamage:
    """Logs and counts each damaged manifest once in a process."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    async def check(
        self, body: bytes, digest: str, name: Name, on_damage: Callable[[], None]
    ) -> None:
        """Check that `body` hashes to `digest`; `name` is a repository that has it.

        Raises:
            ManifestUnknown: it does not; a push of the manifest replaces it.

        """
        if await _is_whole(body, digest):
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
            f"the bytes of manifest {digest} in {name} are damaged; push it again",
            reference=digest,
        )

    def note_healed(self, name: Name, digest: str) -> None:
        """Log that a push replaced the bytes of a damaged manifest."""
        self._logged.discard(digest)
        _log.warning(
            "manifest %s was damaged in the database; a push to %s healed it", digest, name
        )


def is_small_and_whole(body: bytes, digest: str) -> bool:
    """Return True if `body` is at most `INLINE_BYTES` long and hashes to `digest`."""
    return len(body) <= INLINE_BYTES and _hashes_to(body, digest)


async def _is_whole(body: bytes, digest: str) -> bool:
    """Return True if `body` hashes to `digest`; a large one is hashed in a thread."""
    if len(body) <= INLINE_BYTES:
        return _hashes_to(body, digest)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_HASHING, _hashes_to, body, digest)


def _hashes_to(body: bytes, digest: str) -> bool:
    # Every pull of a manifest calls this; it takes half the time of `digest_of`.
    return digest == f"sha256:{sha256(body).hexdigest()}"
