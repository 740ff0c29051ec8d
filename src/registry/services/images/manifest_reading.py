"""Read a pushed manifest: a small one at once, large ones in a thread, one after the other.

Parsing 4 MiB takes tens of milliseconds and ten times the memory, and hashing takes more: on the
event loop every request would wait. A single thread bounds the memory and the time that it holds
the interpreter's lock; pushes of large manifests wait for each other.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, NamedTuple

from registry.errors import DigestMismatch
from registry.oci.digest import Digest, digest_of
from registry.oci.manifest import Manifest, parse_manifest

INLINE_BYTES: Final = 64 * 1024
"""The largest manifest that is read on the event loop, within a millisecond or two."""


class ReadManifest(NamedTuple):
    """A manifest that was read, and the digests of its bytes."""

    manifest: Manifest
    digest: Digest
    """The sha256."""
    sha512: Digest


class ManifestReader:
    """The thread in which large manifests are read. A process has one."""

    def __init__(self, thread: Executor | None = None) -> None:
        self._thread = thread or ThreadPoolExecutor(1, "manifest")

    async def read(
        self, body: bytes, content_type: str | None, expected: Digest | None
    ) -> ReadManifest:
        """Return the manifest that `body` is.

        Raises:
            DigestMismatch: the bytes do not hash to `expected`.
            ManifestInvalid, ManifestTypeUnsupported: see `parse_manifest`.

        """
        if len(body) <= INLINE_BYTES:
            return _read(body, content_type, expected)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _read, body, content_type, expected)


def _read(body: bytes, content_type: str | None, expected: Digest | None) -> ReadManifest:
    # No hash before one is needed: it is most of what a document costs that holds too much.
    names: dict[str, Digest] = {}
    if expected is not None:
        found = digest_of(body, expected.algorithm)
        if expected != found:
            raise DigestMismatch(
                f"the manifest's bytes do not hash to {expected}", digest=str(expected)
            )
        names[expected.algorithm] = found
    manifest = parse_manifest(body, content_type)
    return ReadManifest(
        manifest,
        names.get("sha256") or digest_of(body),
        names.get("sha512") or digest_of(body, "sha512"),
    )
