"""``/v1/repositories/{id}/images``: list and show images, their referrers and contents."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import Response, get
from litestar.params import FromPath
from msgspec import Meta, structs

from cloudcore.db.base import Large
from cloudcore.web.app import Context, Needs
from cloudcore.web.pagination import UuidPage
from cloudcore.web.query import PLUS
from cloudcore.wire import ResponseBody
from registry.control.image_bodies import (
    IMAGE,
    IMAGES,
    ImageAnswer,
    ManyImages,
    configuration_answer,
    image_answer,
)
from registry.control.visible_repositories import authorized_visible_repository
from registry.metadata.images.details import NEWEST, TagStatus
from registry.oci.media_types import MANIFEST_TYPES
from registry.oci.reference import Name
from registry.services.context import ServiceContext
from registry.services.images import details as images
from registry.services.images.image_contents import (
    read_attachment,
    read_configuration,
    read_platforms,
)
from registry.services.images.referrers import read_relations


class ImageListQuery(UuidPage):
    """The filter of a list of images."""

    tag_status: Literal["tagged", "untagged", "any"] = "any"
    tag_prefix: str | None = None
    """Only images with a tag that begins with this text; there are no wildcards."""
    include: Literal["platforms", "relations"] | None = None
    """Add the platforms of each image, which are read from the image itself; with `relations` also
    what is attached to it, whether it is pinned, and which indexes list it."""


class ImageQuery(msgspec.Struct):
    """What is shown of an image."""

    include: Literal["configuration", "relations"] | None = None
    """Add the image's configuration and the indexes that list it; or, as in a list, its relations.
    """


class OneImage(ResponseBody):
    """The body of an answer: an image."""

    image: ImageAnswer


@get(IMAGES, opt={"action": "registry:DescribeImages", "query": ImageListQuery})
async def list_images(
    repository_id: FromPath[str], ctx: Context, needs: Needs[ServiceContext]
) -> ManyImages:
    """List a repository's images with their tags, newest first."""
    found = await authorized_visible_repository(ctx, repository_id)
    query = ctx.query(ImageListQuery)
    pager = ctx.pager(query)
    (before,) = pager.position or (NEWEST,)
    rows, total = await ctx.database.read(
        Large(found.repository.account_id, images.list_images),
        found,
        TagStatus(query.tag_status),
        query.tag_prefix,
        before,
        pager.wanted,
    )
    cut, meta = pager.cut(rows, total, key=lambda row: (row.id,))
    if query.include is None:
        return ManyImages(images=[image_answer(row) for row in cut], meta=meta)
    answers = [
        structs.replace(image_answer(row), platforms=await read_platforms(needs, found, row))
        for row in cut
    ]
    if query.include == "relations":
        relations = await ctx.database.read(read_relations, found, cut, ctx.clock())
        answers = [structs.replace(each, **relations[each.id]._asdict()) for each in answers]
    return ManyImages(images=answers, meta=meta)


@get(IMAGE, opt={"action": "registry:DescribeImages", "query": ImageQuery})
async def get_image(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context, needs: Needs[ServiceContext]
) -> OneImage:
    """Return an image, by any digest of its manifest, by its id, or by a short digest.

    A short digest is the beginning of the sha256, 6 hex digits or more, with or without `sha256:`.
    If several images of the repository have it, the answer is 400, `ambiguous`.
    """
    found = await authorized_visible_repository(ctx, repository_id)
    query = ctx.query(ImageQuery)
    read = Large(found.repository.account_id, images.get_image)
    row = await ctx.database.read(read, found, digest)
    answer = image_answer(row)
    if query.include is None:
        return OneImage(image=answer)
    relations = (await ctx.database.read(read_relations, found, [row], ctx.clock()))[row.id]
    if query.include == "relations":
        answer = structs.replace(answer, **relations._asdict())
    else:
        answer.listed_by = relations.listed_by
        configuration = await read_configuration(needs, found, row)
        answer.configuration = (
            None if configuration is None else configuration_answer(configuration)
        )
    return OneImage(image=answer)


class ReferrerQuery(UuidPage):
    """The filter of a list of referrers."""

    artifact_type: Annotated[str, PLUS] = ""


@get(f"{IMAGE}/referrers", opt={"action": "registry:DescribeImages", "query": ReferrerQuery})
async def list_image_referrers(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context
) -> ManyImages:
    """List the referrers of an image (signatures, SBOMs, attestations), newest first."""
    found = await authorized_visible_repository(ctx, repository_id)
    query = ctx.query(ReferrerQuery)
    pager = ctx.pager(query)
    (before,) = pager.position or (NEWEST,)
    rows, total = await ctx.database.read(
        Large(found.repository.account_id, images.list_referring_images),
        found,
        digest,
        query.artifact_type,
        before,
        pager.wanted,
    )
    cut, meta = pager.cut(rows, total, key=lambda row: (row.id,))
    return ManyImages(images=[image_answer(row) for row in cut], meta=meta)


@get(
    f"{IMAGE}/manifest",
    opt={"action": "registry:DescribeImages", "media_types": tuple(sorted(MANIFEST_TYPES))},
)
async def get_image_manifest(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context, needs: Needs[ServiceContext]
) -> Response[bytes]:
    """Return the bytes of an image's manifest, in the type they were pushed with."""
    found = await authorized_visible_repository(ctx, repository_id)
    read = Large(found.repository.account_id, images.get_document)
    document = await ctx.database.read(read, found, digest)
    name = Name(found.handle, found.repository.name)
    await needs.manifest_damage.check(document.body, document.digest, name, needs.on_damage)
    return Response(document.body, media_type=document.media_type)


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
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context, needs: Needs[ServiceContext]
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
