"""Read an image's contents: its platforms, its configuration, a small layer of an artifact.

A configuration is a blob that a client pushed. If it is missing, damaged, malformed or larger than
`MAX_CONFIGURATION_BYTES`, or if the store is unavailable, the image is shown without it.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from cloudcore.db.base import Large
from cloudcore.errors import NotFound, PlatformError
from cloudcore.threads import DOCUMENTS
from registry.metadata.images import details as images
from registry.metadata.images.details import ImageRow
from registry.metadata.repositories.repository import VisibleRepository
from registry.oci import image_contents as contents
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.blobs.reading import open_blob, stat_blob
from registry.services.context import ServiceContext

MAX_BYTES: Final = 2_000_000
"""The size of the largest layer that is read, in bytes."""


async def read_configuration(
    ctx: ServiceContext, found: VisibleRepository, image: ImageRow
) -> contents.Configuration | None:
    """Return the configuration of an image, or None if it cannot be read."""
    if image.config_digest is None:
        return None
    name = Name(found.handle, found.repository.name)
    try:
        blob = await stat_blob(ctx, name, Digest.parse(image.config_digest))
        if blob.link.size > contents.MAX_CONFIGURATION_BYTES:
            return None
        stored = await open_blob(ctx, name, blob)
        async with aclosing(stored):
            document = b"".join([part async for part in stored.stream()])
        return await DOCUMENTS.run(
            found.repository.account_id, contents.parse_configuration, document
        )
    except PlatformError:
        return None


async def read_platforms(
    ctx: ServiceContext, found: VisibleRepository, image: ImageRow
) -> list[str]:
    """Return the platforms of an image, such as ``linux/arm64``.

    The platforms of an index are in its descriptors; an artifact that is not an image has none.
    """
    if image.is_index:
        body = await _read_body(ctx, found, image)
        manifest = await DOCUMENTS.run(found.repository.account_id, contents.parse_contents, body)
        return [] if manifest is None else manifest.platforms
    configuration = await read_configuration(ctx, found, image)
    return [] if configuration is None else [configuration.platform]


async def read_attachment(
    ctx: ServiceContext, found: VisibleRepository, image: ImageRow, layer: int
) -> bytes:
    """Return the content of one layer of an image; the first layer has the number 0.

    Raise `NotFound` if there is no such layer, or the layer is larger than `MAX_BYTES`;
    `BlobUnknown` if the layer is missing or damaged.
    """
    body = await _read_body(ctx, found, image)
    layers = await DOCUMENTS.run(found.repository.account_id, contents.parse_layers, body)
    if layer >= len(layers):
        raise NotFound(f"the image has no layer {layer}", layers=len(layers))
    name = Name(found.handle, found.repository.name)
    blob = await stat_blob(ctx, name, Digest.parse(layers[layer]))
    size = blob.link.size
    if size > MAX_BYTES:
        raise NotFound(
            f"the layer has {size} bytes, and at most {MAX_BYTES} are shown; pull it instead",
            size_bytes=size,
        )
    stored = await open_blob(ctx, name, blob)
    async with aclosing(stored):
        return b"".join([part async for part in stored.stream()])


async def _read_body(ctx: ServiceContext, found: VisibleRepository, image: ImageRow) -> bytes:
    """Return the bytes of an image's manifest; ``b""`` if the image has been deleted."""
    read = Large(found.repository.account_id, images.find_document)
    document = await ctx.database.read(read, found.repository.id, image.id)
    return b"" if document is None else document.body
