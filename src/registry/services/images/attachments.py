"""Read a small layer of an artifact, such as an SBOM or an attestation, into memory."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from cloudcore.db.base import Large
from cloudcore.errors import NotFound
from cloudcore.threads import DOCUMENTS
from registry.metadata.images import details as images
from registry.metadata.images.details import ImageRow
from registry.metadata.repositories.visible import VisibleRepository
from registry.oci.digest import Digest
from registry.oci.image_contents import parse_layers
from registry.oci.reference import Name
from registry.services.blobs.reading import open_blob, stat_blob
from registry.services.context import ServiceContext

MAX_BYTES: Final = 2_000_000
"""The largest layer that is read."""


async def read_attachment(
    ctx: ServiceContext, found: VisibleRepository, image: ImageRow, layer: int
) -> bytes:
    """Return the content of one layer of an image.

    Raises:
        NotFound: the image has no such layer, or it is larger than `MAX_BYTES`.
        BlobUnknown: the layer is missing or damaged.

    """
    account_id = found.repository.account_id
    read = Large(account_id, images.find_document)
    document = await ctx.database.read(read, found.repository.id, image.id)
    body = b"" if document is None else document.body  # deleted meanwhile
    layers = await DOCUMENTS.run(account_id, parse_layers, body)
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
