"""The images of this registry on this machine: what fills `cloudcore.compute.images.IMAGES`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cloudcore.compute.images import ImageRefused, ImageRoot
from registry.errors import ManifestInvalid
from registry.image_roots.image_config import CONFIG_TYPES, choose_platform, find_user, read_image
from registry.image_roots.layer_store import LayerStore
from registry.image_roots.pulling import Pull, begin_pull, parse_image
from registry.metadata.images.manifests import StoredManifest
from registry.oci.digest import Digest, digest_of
from registry.oci.image_contents import MAX_CONFIGURATION_BYTES
from registry.oci.manifest import Manifest, parse_manifest
from registry.services.access.tokens import BearerTokens
from registry.services.context import ServiceContext

_MOST_INDEXES: Final = 2
"""An index may name another, which then names the image."""


@dataclass(frozen=True, slots=True)
class RegistryImages:
    """The `Images` of a registry in the same process."""

    ctx: ServiceContext
    tokens: BearerTokens
    store: LayerStore
    hosts: frozenset[str]
    """Under which clients reach this registry."""

    def check(self, reference: str) -> None:
        """Check a reference; see `Images`."""
        parse_image(reference, self.hosts)

    async def fetch(self, account_id: str, role_id: str | None, reference: str) -> ImageRoot:
        """Return an image, pulled as a role or as nobody; see `Images`."""
        image = parse_image(reference, self.hosts)
        pull = await begin_pull(self.ctx, self.tokens, account_id, role_id, image)
        stored, manifest = await _find_image(pull, image.reference)
        if manifest.config is None or manifest.config.media_type not in CONFIG_TYPES:
            raise ImageRefused("it is an artifact, and no image")
        configuration = await _read_small(pull, manifest.config.digest)
        read = read_image(manifest, configuration)
        layers = await self.store.unpack(account_id, stored.digest, read.layers, pull.blob)
        user = await asyncio.to_thread(find_user, read.user, layers)
        return ImageRoot(stored.digest, layers, read.config._replace(user=user))

    async def check_right(self, account_id: str, role_id: str | None, reference: str) -> None:
        """Ask for the right to pull an image; see `Images`."""
        image = parse_image(reference, self.hosts)
        await begin_pull(self.ctx, self.tokens, account_id, role_id, image)

    async def keep_only(self, digests: Iterable[str]) -> None:
        """Remove what nothing uses; see `Images`."""
        await asyncio.to_thread(self.store.keep_only, digests)


async def _find_image(pull: Pull, reference: str | Digest) -> tuple[StoredManifest, Manifest]:
    """Return the image that a reference names, directly or by indexes."""
    for _ in range(_MOST_INDEXES + 1):
        stored = await pull.manifest(reference)
        if len(stored.body) > MAX_CONFIGURATION_BYTES:  # a parser would hold up others
            raise ImageRefused(f"its manifest has more than {MAX_CONFIGURATION_BYTES} bytes")
        try:
            manifest = parse_manifest(stored.body, stored.media_type, is_stored=True)
        except ManifestInvalid as error:
            raise ImageRefused(f"its manifest cannot be read: {error.message}") from None
        if not manifest.is_index:
            return stored, manifest
        reference = Digest.parse(choose_platform(stored.body))
    raise ImageRefused(f"it lies below more than {_MOST_INDEXES} indexes")


async def _read_small(pull: Pull, digest: str) -> bytes:
    """Return a configuration, which must be small, and whose bytes are verified."""
    data = b""
    async with pull.blob(digest) as parts:
        async for part in parts:
            data += part
            if len(data) > MAX_CONFIGURATION_BYTES:
                raise ImageRefused(
                    f"its configuration has more than {MAX_CONFIGURATION_BYTES} bytes"
                )
    wanted = Digest.parse(digest)
    if digest_of(data, wanted.algorithm) != wanted:
        raise ImageRefused(f"the bytes of its configuration {digest} are others")
    return data
