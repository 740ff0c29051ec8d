"""``/v1/repositories/{id}/images``: list and show images, their referrers and contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from litestar import Response, get
from litestar.params import FromPath
from msgspec import UNSET, Meta, UnsetType, structs

from cloudcore.db.base import Large
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import RecordAnswers, answer_of
from cloudcore.web.app import Context, Needs
from cloudcore.web.pagination import UuidPage
from cloudcore.web.query import PLUS
from cloudcore.wire import RFC3339, ResponseBody, or_absent
from registry.control.visible_repositories import PATH, authorized_visible_repository
from registry.metadata.images.details import NEWEST, ImageRow, TagStatus
from registry.oci.image_contents import Configuration, Execution
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


class BuildStep(ResponseBody):
    """A step of the build that made an image."""

    created: str | None
    created_by: str
    comment: str
    empty_layer: bool
    """True if the step made no layer."""


class ImageConfiguration(ResponseBody):
    """The configuration of an image (OCI image-spec, "Image Configuration"), as it was pushed.

    The registry checks none of its values: `created` may be no date.
    """

    platform: str
    """The platform the image runs on, such as ``linux/arm/v7``."""
    created: str | None
    author: str
    user: str
    working_dir: str
    entrypoint: Sequence[str]
    cmd: Sequence[str]
    env: Sequence[str]
    """As ``NAME=value``."""
    exposed_ports: Sequence[str]
    """Such as ``8080/tcp``."""
    labels: Mapping[str, str]
    history: Sequence[BuildStep]
    """Build steps, oldest first."""


def configuration_answer(found: Configuration) -> ImageConfiguration:
    """Convert a configuration to its response record."""
    execution = found.config or Execution()
    return answer_of(
        ImageConfiguration,
        execution,
        platform=found.platform,
        created=found.created,
        author=found.author,
        entrypoint=execution.entrypoint or [],
        cmd=execution.cmd or [],
        env=execution.env or [],
        exposed_ports=list(execution.exposed_ports or {}),
        labels=execution.labels or {},
        history=[answer_of(BuildStep, step) for step in found.history or []],
    )


IMAGES: Final = f"{PATH}/images"
IMAGE: Final = f"{IMAGES}/{{digest:str}}"


class ImageAnswer(ResponseBody):
    """An image: a manifest with its tags."""

    id: Uuid
    digest: str
    """The sha256 of the manifest's bytes."""
    media_type: str
    tags: Sequence[str]
    manifest_size_bytes: int
    size_bytes: int
    """The sum of the distinct blobs that it references."""
    is_index: bool
    pushed_at: RFC3339
    last_pulled_at: RFC3339 | None
    """To the minute. A HEAD does not count; clients that have the image may send nothing else."""
    artifact_type: str | UnsetType = UNSET
    config_digest: str | UnsetType = UNSET
    """Absent on a multi-platform index."""
    subject: str | UnsetType = UNSET
    """Digest of the image that this one refers to (`subject` of its manifest)."""
    platforms: Sequence[str] | UnsetType = UNSET
    """Platforms such as ``linux/amd64``; only in a list with `include`."""
    attached_types: Sequence[str] | UnsetType = UNSET
    """Artifact types of the newest 20 artifacts attached to the image. This field and the next
    three are present only with ``include=relations``."""
    attached_tags: Sequence[str] | UnsetType = UNSET
    """Tags made of its digest, by which older clients attach artifacts: ``sha256-….sig``."""
    is_pinned: bool | UnsetType = UNSET
    listed_by: Sequence[str] | UnsetType = UNSET
    """Digests of indexes that list it, 20 at most. Also with ``include=configuration``."""
    configuration: ImageConfiguration | UnsetType | None = UNSET
    """Only with ``include=configuration``; null if there is none that can be read."""


def image_answer(image: ImageRow) -> ImageAnswer:
    """Convert an image to its response record."""
    subject = or_absent(image.subject_digest)
    return answer_of(ImageAnswer, image, subject=subject, is_index=bool(image.is_index))


IMAGE_ANSWERS: Final = RecordAnswers(ImageAnswer, "image", image_answer)


class ImageListQuery(UuidPage):
    """The filter of a list of images."""

    tag_status: Literal["tagged", "untagged", "any"] = "any"
    tag_prefix: str | None = None
    """Only images with a tag that begins with this text; there are no wildcards."""
    include: Literal["platforms", "relations"] | None = None
    """Add the platforms of each image, which are read from the image itself; with `relations` also
    what is attached to it, whether it is pinned, and which indexes list it."""


class ImageQuery(msgspec.Struct):
    """Options of reading an image."""

    include: Literal["configuration", "relations"] | None = None
    """Add the image's configuration and the indexes that list it; or, as in a list, its relations.
    """


@IMAGE_ANSWERS.lists(IMAGES, "registry:DescribeImages", ImageListQuery)
async def list_images(
    repository_id: FromPath[str], ctx: Context, needs: Needs[ServiceContext]
) -> ResponseBody:
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
        return IMAGE_ANSWERS.many([image_answer(row) for row in cut], meta)
    answers = [
        structs.replace(image_answer(row), platforms=await read_platforms(needs, found, row))
        for row in cut
    ]
    if query.include == "relations":
        relations = await ctx.database.read(read_relations, found, cut, ctx.clock())
        answers = [structs.replace(each, **relations[each.id]._asdict()) for each in answers]
    return IMAGE_ANSWERS.many(answers, meta)


@IMAGE_ANSWERS.gets(IMAGE, "registry:DescribeImages", query=ImageQuery)
async def get_image(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context, needs: Needs[ServiceContext]
) -> ResponseBody:
    """Return an image, by any digest of its manifest, by its id, or by a short digest.

    A short digest is the beginning of the sha256, 6 hex digits or more, with or without `sha256:`.
    If several images of the repository match, the response is 400, `ambiguous`.
    """
    found = await authorized_visible_repository(ctx, repository_id)
    query = ctx.query(ImageQuery)
    read = Large(found.repository.account_id, images.get_image)
    row = await ctx.database.read(read, found, digest)
    answer = image_answer(row)
    if query.include is None:
        return IMAGE_ANSWERS.wrapped(answer)
    relations = (await ctx.database.read(read_relations, found, [row], ctx.clock()))[row.id]
    if query.include == "relations":
        answer = structs.replace(answer, **relations._asdict())
    else:
        answer.listed_by = relations.listed_by
        configuration = await read_configuration(needs, found, row)
        answer.configuration = (
            None if configuration is None else configuration_answer(configuration)
        )
    return IMAGE_ANSWERS.wrapped(answer)


class ReferrerQuery(UuidPage):
    """The filter of a list of referrers."""

    artifact_type: Annotated[str, PLUS] = ""


@IMAGE_ANSWERS.lists(f"{IMAGE}/referrers", "registry:DescribeImages", ReferrerQuery)
async def list_image_referrers(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context
) -> ResponseBody:
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
    return IMAGE_ANSWERS.many([image_answer(row) for row in cut], meta)


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
    """Position of the layer in the manifest, from 0."""


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

    The response has the bytes of a pull, for web pages to show; larger layers can only be pulled.
    """
    found = await authorized_visible_repository(ctx, repository_id)
    read = Large(found.repository.account_id, images.get_image)
    row = await ctx.database.read(read, found, digest)
    layer = ctx.query(AttachmentQuery).layer
    content = await read_attachment(needs, found, row, layer)
    return Response(content, media_type="application/octet-stream")
