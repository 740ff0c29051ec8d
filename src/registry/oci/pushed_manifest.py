"""Read a pushed manifest: parse it, and compute its digests."""

from __future__ import annotations

from typing import NamedTuple

from registry.errors import DigestMismatch
from registry.oci.digest import Digest, digest_of
from registry.oci.manifest import Manifest, parse_manifest


class ReadManifest(NamedTuple):
    """A parsed manifest and the digests of its bytes."""

    manifest: Manifest
    digest: Digest
    """The sha256."""
    sha512: Digest


def read_manifest(body: bytes, content_type: str | None, expected: Digest | None) -> ReadManifest:
    """Parse a pushed manifest and compute its digests.

    Raises:
        DigestMismatch: the bytes do not hash to `expected`.
        ManifestInvalid, ManifestTypeUnsupported: see `parse_manifest`.

    """
    # Hash only when needed: for an oversized document, hashing is most of the cost.
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
