"""``/v1/repositories/{id}/images``: delete images, alone, in batches, or with their children."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType, field

from cloudcore.web.app import Context
from cloudcore.web.context import Reply
from cloudcore.web.envelope import rendering
from cloudcore.wire import RequestBody, ResponseBody
from registry.control import visible_repositories
from registry.control.bodies import answer_of
from registry.control.image_bodies import IMAGE, IMAGES, ImageAnswer, image_answer
from registry.services.images import details as images
from registry.services.images import index_deletion
from registry.services.images.details import BatchFailure, BatchOutcome, DeletedItem
from registry.services.images.index_deletion import MAX_MEMBERS, KeptReason, TreeOutcome


class DeleteImageQuery(msgspec.Struct):
    """Options of a deletion."""

    force: bool = False
    """Delete pinned images too, and images that an index lists, which lacks them then."""


class BatchDelete(RequestBody):
    """Images to delete, each with all its tags, and tags to delete without their images."""

    digests: Annotated[list[str], Meta(max_length=100)] = field(default_factory=list)
    tags: Annotated[list[str], Meta(max_length=100)] = field(default_factory=list)


class IncompleteIndex(ResponseBody):
    """An index that lists an image which was deleted by force: a pull of its platform fails."""

    digest: str
    tags: Sequence[str]
    """The first 20."""


class DeletedImage(ResponseBody):
    """An image or tag that was deleted."""

    digest: str
    tags: Sequence[str]
    incomplete_indexes: Sequence[IncompleteIndex] | UnsetType = UNSET
    """Indexes that stay and lack the image now, by digest; the first 20. Restoring the image, or
    pushing it again, makes them whole. Absent if there are none."""


class OneDeletedImage(ResponseBody):
    """The body of an answer: a deleted image."""

    deleted: DeletedImage


class FailedDeletion(ResponseBody):
    """An item of a batch that was not deleted, and why."""

    digest: str | None
    tag: str | None
    code: str
    message: str
    params: dict[str, Any] | UnsetType = UNSET
    """As in the error of a single deletion: the pins or the indexes that hold an image."""


class BatchDeletion(ResponseBody):
    """The outcome of each item of a batch."""

    deleted: Sequence[DeletedImage]
    failures: Sequence[FailedDeletion]


class KeptImage(ResponseBody):
    """An image under an index that stays when the index is deleted."""

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


class OneDeletionPreview(ResponseBody):
    """The body of an answer: a preview."""

    deletion: DeletionPreview


class DeleteWithChildren(RequestBody):
    """The children that may be deleted with an index."""

    digests: Annotated[list[str], Meta(max_length=MAX_MEMBERS)] | None = None
    """sha256 digests of the children to delete; null: all that nothing else needs."""


class KeptDigest(ResponseBody):
    """A child that stayed."""

    digest: str
    reason: KeptReason


class IndexDeletion(BatchDeletion):
    """The outcome for the index, and for each child that was to be deleted."""

    kept: Sequence[KeptDigest]
    """Children that stayed because something else needs them."""


@delete(
    IMAGE,
    status_code=200,
    opt={"action": "registry:DeleteImage", "query": DeleteImageQuery, "statuses": (204, 409)},
)
async def delete_image(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context
) -> Reply[OneDeletedImage]:
    """Delete an image and every tag that points to it.

    The answer is 204, without a body. Only if indexes lack the image now, which `force` allows, it
    is 200 and names them.
    """
    found = await visible_repositories.authorized_visible_repository(ctx, repository_id)
    force = ctx.query(DeleteImageQuery).force
    change = visible_repositories.change_of(ctx)
    item = await ctx.database.write(images.delete_image, found, digest, change, force=force)
    if not item.incomplete:
        return Reply(204, b"")
    return Reply(200, msgspec.json.encode(OneDeletedImage(deleted=_deleted_answer(item))))


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
        wrap=_batch_answer,
        told=_batch_counts,
    )


def _batch_answer(outcome: BatchOutcome) -> BatchDeletion:
    """Return the answer for a batch."""
    return BatchDeletion(
        deleted=[_deleted_answer(each) for each in outcome.deleted],
        failures=[_failure_answer(each) for each in outcome.failures],
    )


def _deleted_answer(item: DeletedItem) -> DeletedImage:
    incomplete = [answer_of(IncompleteIndex, each) for each in item.incomplete]
    return answer_of(DeletedImage, item, incomplete_indexes=incomplete or UNSET)


def _batch_counts(outcome: BatchOutcome) -> dict[str, object] | None:
    """Return the counts of a batch for the audit log, or None if nothing was deleted."""
    if not outcome.deleted:
        return None
    return {"deleted_count": len(outcome.deleted), "not_deleted_count": len(outcome.failures)}


def _failure_answer(failure: BatchFailure) -> FailedDeletion:
    error = failure.error
    shown = {"code": rendering(type(error))[1], "message": error.message}
    return answer_of(FailedDeletion, failure, **shown, params=error.params or UNSET)


@get(f"{IMAGE}/deletion-preview", opt={"action": "registry:DescribeImages", "statuses": (409,)})
async def preview_image_deletion(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context
) -> OneDeletionPreview:
    """Return what would be deleted with an image, and which images under it would stay."""
    found = await visible_repositories.authorized_own(ctx, repository_id)
    preview = await ctx.database.read(index_deletion.preview_deletion, found, digest, ctx.clock())
    return OneDeletionPreview(
        deletion=answer_of(
            DeletionPreview,
            preview,
            deleted=[image_answer(each) for each in preview.deleted],
            kept=[
                KeptImage(image=image_answer(each), reason=reason) for each, reason in preview.kept
            ],
        )
    )


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
        wrap=_tree_answer,
        told=lambda outcome: _batch_counts(outcome.batch),
    )


def _tree_answer(outcome: TreeOutcome) -> IndexDeletion:
    kept = [KeptDigest(digest=each.digest, reason=reason) for each, reason in outcome.kept]
    return answer_of(IndexDeletion, _batch_answer(outcome.batch), kept=kept)
