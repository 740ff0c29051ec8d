"""``/v1/repositories/{id}/images``: delete images, alone, in batches, or with their children."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import msgspec
from litestar import delete, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, field

from cloudcore.db.base import Large
from cloudcore.web.answers import RecordAnswers, answer_of
from cloudcore.web.app import Context
from cloudcore.web.context import Reply
from cloudcore.wire import RequestBody, ResponseBody
from registry.control import visible_repositories
from registry.control.images import IMAGE, IMAGES, ImageAnswer, image_answer
from registry.services.images import details as images
from registry.services.images import index_deletion
from registry.services.images.details import BatchDeletion, DeletedImage
from registry.services.images.index_deletion import (
    MAX_MEMBERS,
    IndexDeletion,
    KeptReason,
    TreePreview,
)


class DeleteImageQuery(msgspec.Struct):
    """Options of a deletion."""

    force: bool = False
    """Delete also pinned images, and images that an index lists; the index is incomplete then."""


class BatchDelete(RequestBody):
    """Images to delete, each with all its tags, and tags to delete without their images."""

    digests: Annotated[list[str], Meta(max_length=100)] = field(default_factory=list)
    tags: Annotated[list[str], Meta(max_length=100)] = field(default_factory=list)


class OneDeletedImage(ResponseBody):
    """The body of an answer: a deleted image."""

    deleted: DeletedImage


class KeptImage(ResponseBody):
    """An image that stays when an index above it is deleted."""

    image: ImageAnswer
    reason: KeptReason
    """It has a tag or a pin, another index lists it, or a referrer of it stays."""


class DeletionPreview(ResponseBody):
    """What deleting an image with its children would do now."""

    deleted: Sequence[ImageAnswer]
    """The image, then the children that nothing else needs, each after the indexes that list it."""
    kept: Sequence[KeptImage]
    """Images under it that would stay."""
    listed_by: Sequence[str]
    """Digests of indexes in the repository that list the image, at most 20; delete them first."""
    freed_bytes: int
    """Bytes freed once none of the deleted images can be restored."""


class DeleteWithChildren(RequestBody):
    """The children that may be deleted with an index."""

    digests: Annotated[list[str], Meta(max_length=MAX_MEMBERS)] | None = None
    """sha256 digests of the children to delete; null: all that nothing else needs."""


def _preview(preview: TreePreview) -> DeletionPreview:
    return answer_of(
        DeletionPreview,
        preview,
        deleted=[image_answer(each) for each in preview.deleted],
        kept=[KeptImage(image=image_answer(each), reason=reason) for each, reason in preview.kept],
    )


_PREVIEW: Final = RecordAnswers(DeletionPreview, "deletion", _preview, noun="deletion preview")


@delete(
    IMAGE,
    status_code=200,
    opt={"action": "registry:DeleteImage", "query": DeleteImageQuery, "statuses": (204, 409)},
)
async def delete_image(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context
) -> Reply[OneDeletedImage]:
    """Delete an image and every tag that points to it.

    The response is 204, without a body. Only if indexes lack the image now, which `force` allows,
    the response is 200 and names these indexes.
    """
    found = await visible_repositories.authorized_visible_repository(ctx, repository_id)
    force = ctx.query(DeleteImageQuery).force
    change = visible_repositories.change_of(ctx)
    item = await ctx.database.write(images.delete_image, found, digest, change, force=force)
    if item.incomplete_indexes is UNSET:
        return Reply(204, b"")
    return Reply(200, msgspec.json.encode(OneDeletedImage(deleted=item)))


@post(
    f"{IMAGES}/batch-delete",
    status_code=200,
    opt={"action": "registry:DeleteImage", "query": DeleteImageQuery, "idempotent": True},
)
async def batch_delete_images(
    repository_id: FromPath[str], data: JSONBody[BatchDelete], ctx: Context
) -> Reply[BatchDeletion]:
    """Delete images and tags; return each item that could not be deleted, and why."""
    found = await visible_repositories.authorized_visible_repository(ctx, repository_id)
    force = ctx.query(DeleteImageQuery).force
    change = partial(images.delete_batch, force=force)
    return await ctx.commit(
        change,
        found,
        data.digests,
        data.tags,
        visible_repositories.change_of(ctx),
        details=_batch_counts,
    )


def _batch_counts(outcome: BatchDeletion) -> dict[str, object] | None:
    """Return the counts of a batch for the audit log, or None if nothing was deleted."""
    if not outcome.deleted:
        return None
    return {"deleted_count": len(outcome.deleted), "not_deleted_count": len(outcome.failures)}


@_PREVIEW.gets(f"{IMAGE}/deletion-preview", "registry:DescribeImages", statuses=(409,))
async def preview_image_deletion(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return what would be deleted with an image, and which images under it would stay."""
    found = await visible_repositories.authorized_own(ctx, repository_id)
    read = Large(found.repository.account_id, index_deletion.preview_deletion)
    preview = await ctx.database.read(read, found, digest, ctx.clock())
    return _PREVIEW.one(preview)


@post(
    f"{IMAGE}/delete-with-children",
    status_code=200,
    opt={"action": "registry:DeleteImage", "query": DeleteImageQuery, "idempotent": True},
)
async def delete_image_with_children(
    repository_id: FromPath[str],
    digest: FromPath[str],
    data: JSONBody[DeleteWithChildren],
    ctx: Context,
) -> Reply[IndexDeletion]:
    """Delete an index with the children that nothing else needs; return what stayed, and why."""
    found = await visible_repositories.authorized_visible_repository(ctx, repository_id)
    force = ctx.query(DeleteImageQuery).force
    only = None if data.digests is None else frozenset(data.digests)
    change = partial(index_deletion.delete_with_children, force=force)
    return await ctx.commit(
        change,
        found,
        digest,
        only,
        visible_repositories.change_of(ctx),
        details=_batch_counts,
    )
