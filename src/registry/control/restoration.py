"""List and restore deleted repositories, images and tags."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from litestar import post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.db.base import Connection
from cloudcore.identity.rows.accounts import Account, find_account
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import RecordAnswers, answer_of
from cloudcore.web.app import Context
from cloudcore.web.bodies import ActingSource, acting_source
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339
from registry.control import repositories
from registry.control.tags import TagChange
from registry.control.visible_repositories import PATH, authorized_own, change_of
from registry.metadata.images.tombstones import Tombstone, count_tombstones, list_tombstones
from registry.metadata.repositories.deleted import (
    DeletedRepository,
    count_deleted_repositories,
    list_deleted_repositories,
)
from registry.metadata.tags.deleted import DeletedTag, count_deleted_tags, list_deleted_tags
from registry.services.access.decisions import repository_crn
from registry.services.images import restoration
from registry.services.images.restoration import RestoreOutcome

_Digest = Annotated[str, Meta(max_length=135)]


class DeletedRepositoryAnswer(ResponseBody):
    """A repository that was deleted with its content."""

    id: Uuid
    crn: str
    name: str
    uri: str
    """Its image reference without a tag, once it is restored."""
    image_count: int
    tag_count: int
    size_bytes: int
    created_at: RFC3339
    deleted_at: RFC3339
    deleted_by: str | None
    """CRN of the principal that deleted it."""
    deleted_by_source: ActingSource | None
    """The person or service account behind that principal; null if unknown or none."""
    restorable_until: RFC3339


class DeletedImageAnswer(ResponseBody):
    """An image that was deleted with its tags."""

    id: Uuid
    digest: str
    tags: list[str]
    media_type: str
    is_index: bool
    size_bytes: int
    pushed_at: RFC3339
    deleted_at: RFC3339
    deleted_by: str | None
    """CRN of the principal that deleted it."""
    deleted_by_source: ActingSource | None
    """The person or service account behind that principal; null if unknown or none."""
    restorable_until: RFC3339
    artifact_type: str | UnsetType = UNSET


class RestoreImages(RequestBody):
    """The deleted images to restore."""

    digests: Annotated[list[_Digest], Meta(min_length=1, max_length=100)]


class RestoredTag(ResponseBody):
    """A tag that was restored."""

    name: str
    digest: str


def _repository(
    ctx: RequestContext, handle: str, found: DeletedRepository
) -> DeletedRepositoryAnswer:
    return answer_of(
        DeletedRepositoryAnswer,
        found,
        crn=repository_crn(ctx.settings.region, found.account_id, found.name),
        uri=repositories.uri_of(ctx, handle, found.name),
        deleted_by=found.deleted_by or None,
    )


def _image(found: Tombstone) -> DeletedImageAnswer:
    tags, deleted_by = [tag for tag, _ in found.tags], found.deleted_by or None
    return answer_of(DeletedImageAnswer, found, tags=tags, deleted_by=deleted_by)


def _deletion(tag: DeletedTag) -> TagChange:
    return TagChange(
        tag=tag.name,
        action="deleted",
        digest=None,
        previous_digest=tag.digest,
        principal=tag.deleted_by or None,
        source=acting_source(tag.deleted_by_source),
        occurred_at=rfc3339(tag.deleted_at),
    )


_DELETED_TAGS: Final = RecordAnswers(
    TagChange,
    "tag",
    _deletion,
    noun="deleted tag",
    nouns="deleted tags, last deleted first",
    named="DeletedTag",
)
_DELETED_REPOSITORIES: Final = RecordAnswers(
    DeletedRepositoryAnswer, "repository", _repository, noun="deleted repository"
)
_DELETED_IMAGES: Final = RecordAnswers(DeletedImageAnswer, "image", _image, noun="deleted image")
_RESTORED_TAG: Final = RecordAnswers(
    RestoredTag,
    "tag",
    lambda name, digest: RestoredTag(name=name, digest=digest),
    noun="restored tag",
)


@_DELETED_REPOSITORIES.lists("/v1/repositories/deleted", "registry:DescribeRepositories")
async def list_deleted(ctx: Context) -> ResponseBody:
    """List the account's deleted repositories that can be restored, last created first."""
    account_id = repositories.authorized_for_all(ctx)
    pager = ctx.pager(ctx.query(PageQuery))
    (before,) = pager.position or (None,)
    now = ctx.clock()

    def read(tx: Connection) -> tuple[Account | None, list[DeletedRepository], int]:
        rows = list_deleted_repositories(tx, account_id, now, before, pager.wanted)
        total = count_deleted_repositories(tx, account_id, now)
        return find_account(tx, account_id), rows, total

    account, rows, total = await ctx.database.read(read)
    assert account is not None
    found, meta = pager.cut(rows, total, lambda row: (row.id,))
    shown = [_repository(ctx, account.handle, each) for each in found]
    return _DELETED_REPOSITORIES.many(shown, meta)


@repositories.REPOSITORIES.changes(f"{PATH}/restore", "registry:RestoreRepository", statuses=(409,))
async def restore_repository(repository_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Restore a deleted repository with all it held; its name must be free."""
    account_id = account_of(ctx)
    name = await ctx.database.read(
        restoration.name_to_restore, account_id, repository_id, ctx.clock()
    )
    ctx.authorize(repository_crn(ctx.settings.region, account_id, name))
    return await ctx.commit(
        restoration.restore_repository,
        account_id,
        repository_id,
        change_of(ctx),
        wrap=partial(repositories.REPOSITORIES.one, ctx),
    )


@_DELETED_IMAGES.lists(f"{PATH}/images/deleted", "registry:DescribeImages")
async def list_deleted_images(repository_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the deleted images that can be restored, last deleted first."""
    repository = (await authorized_own(ctx, repository_id)).repository
    pager = ctx.pager(ctx.query(PageQuery))
    now = ctx.clock()
    before = None if pager.position is None else (pager.position[0], pager.position[1])

    def read(tx: Connection) -> tuple[list[Tombstone], int]:
        rows = list_tombstones(tx, repository.id, now, before, pager.wanted)
        return rows, count_tombstones(tx, repository.id, now)

    found, meta = pager.cut(*await ctx.database.read(read), lambda row: (row.deleted_at, row.id))
    return _DELETED_IMAGES.many([_image(each) for each in found], meta)


@post(
    PATH + "/images/restore",
    status_code=200,
    opt={"action": "registry:RestoreImage", "idempotent": True},
)
async def restore_images(
    repository_id: FromPath[str], data: JSONBody[RestoreImages], ctx: Context
) -> Reply[RestoreOutcome]:
    """Restore deleted images, each as it was, with those of its tags that are not in use."""
    repository = await repositories.authorized_repository(ctx, repository_id)
    return await ctx.commit(
        restoration.restore_images,
        repository,
        data.digests,
        change_of(ctx),
        details=_counts,
    )


@_DELETED_TAGS.lists(f"{PATH}/deleted-tags", "registry:DescribeImages")
async def list_deleted_tag_names(repository_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the deleted tags that can be restored and whose image exists, last deleted first."""
    repository = (await authorized_own(ctx, repository_id)).repository
    pager = ctx.pager(ctx.query(PageQuery))
    (before,) = pager.position or (None,)
    now = ctx.clock()

    def read(tx: Connection) -> tuple[list[DeletedTag], int]:
        rows = list_deleted_tags(tx, repository.id, now, before, pager.wanted)
        return rows, count_deleted_tags(tx, repository.id, now)

    found, meta = pager.cut(*await ctx.database.read(read), lambda row: (row.sequence,))
    return _DELETED_TAGS.many([_deletion(each) for each in found], meta)


@_RESTORED_TAG.changes(f"{PATH}/tags/{{tag:str}}/restore", "registry:RestoreImage", statuses=(409,))
async def restore_tag(
    repository_id: FromPath[str], tag: FromPath[str], ctx: Context
) -> Reply[ResponseBody]:
    """Point a deleted tag to the image it pointed to."""
    repository = await repositories.authorized_repository(ctx, repository_id)
    return await ctx.commit(
        restoration.restore_tag,
        repository,
        tag,
        change_of(ctx),
        wrap=partial(_RESTORED_TAG.one, tag),
    )


def _counts(batch: RestoreOutcome) -> dict[str, object] | None:
    """Return the audit details of a restored batch, or None if nothing was restored."""
    if not batch.restored:
        return None
    return {"restored_count": len(batch.restored), "not_restored_count": len(batch.failures)}
