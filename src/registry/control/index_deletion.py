"""Delete an index together with the images under it that nothing else needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RequestBody, ResponseBody
from registry.control.bodies import answer_of
from registry.control.images import (
    IMAGE,
    BatchDeletion,
    DeleteImageQuery,
    ImageAnswer,
    batch_answer,
    batch_counts,
    image_answer,
)
from registry.control.visible_repositories import (
    authorized_own,
    authorized_visible_repository,
    change_of,
)
from registry.services.images import index_deletion
from registry.services.images.index_deletion import MAX_MEMBERS, KeptReason, TreeOutcome


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
    """A preview, wrapped."""

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


@get(f"{IMAGE}/deletion-preview", opt={"action": "registry:DescribeImages", "statuses": (409,)})
async def preview_image_deletion(
    repository_id: FromPath[str], digest: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OneDeletionPreview:
    """Return what would be deleted with an image, and which images under it would stay."""
    found = await authorized_own(ctx, repository_id)
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
    ctx: NamedDependency[RequestContext],
) -> Reply[IndexDeletion]:
    """Delete an index with the children that nothing else needs; return what stayed, and why."""
    found = await authorized_visible_repository(ctx, repository_id)
    force = ctx.query(DeleteImageQuery).force
    only = None if data.digests is None else frozenset(data.digests)
    change = partial(index_deletion.delete_with_children, force=force)
    return await ctx.commit(
        change,
        found,
        digest,
        only,
        change_of(ctx),
        wrap=_answer,
        told=lambda outcome: batch_counts(outcome.batch),
    )


def _answer(outcome: TreeOutcome) -> IndexDeletion:
    kept = [KeptDigest(digest=each.digest, reason=reason) for each, reason in outcome.kept]
    return answer_of(IndexDeletion, batch_answer(outcome.batch), kept=kept)
