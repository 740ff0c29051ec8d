"""``/v1/repositories/{id}/images/{digest}/attachment``: the content of an SBOM or attestation."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath
from msgspec import Meta

from cloudcore.db.base import Large
from cloudcore.web.app import Needs
from cloudcore.web.context import RequestContext
from registry.control.images import IMAGE
from registry.control.visible_repositories import authorized_visible_repository
from registry.services.context import ServiceContext
from registry.services.images import details as images
from registry.services.images.image_contents import read_attachment


class AttachmentQuery(msgspec.Struct):
    """Which layer of the artifact to return."""

    layer: Annotated[int, Meta(ge=0, le=100)] = 0
    """Its place in the manifest."""


@get(
    f"{IMAGE}/attachment",
    opt={
        "action": "registry:PullImage",
        "query": AttachmentQuery,
        "media_types": ("application/octet-stream",),
    },
)
async def get_image_attachment(
    repository_id: FromPath[str],
    digest: FromPath[str],
    ctx: NamedDependency[RequestContext],
    needs: Needs[ServiceContext],
) -> Response[bytes]:
    """Return a layer of an SBOM, an attestation or another artifact, of 2 MB at most.

    It is what a pull of the layer returns, for pages that show it; larger ones are only pulled.
    """
    found = await authorized_visible_repository(ctx, repository_id)
    read = Large(found.repository.account_id, images.get_image)
    row = await ctx.database.read(read, found, digest)
    layer = ctx.query(AttachmentQuery).layer
    content = await read_attachment(needs, found, row, layer)
    return Response(content, media_type="application/octet-stream")


HANDLERS: Final = (get_image_attachment,)
