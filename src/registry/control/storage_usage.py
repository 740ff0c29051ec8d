"""Storage used by images, repositories and the account, its history, and stale repositories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from litestar.params import FromPath
from msgspec import UNSET, Meta, UnsetType, structs

from cloudcore.web.answers import RecordAnswers, answer_of
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import PageQuery
from cloudcore.wire import RFC3339, ResponseBody, rfc3339
from registry.control.repositories import (
    REPOSITORIES,
    authorized_for_all,
    authorized_repository,
    reference_of,
)
from registry.control.visible_repositories import PATH, authorized_own
from registry.metadata.blobs.damage import DamagedImage, DamagedObject
from registry.metadata.collector.plain_objects import estimate_plain_of
from registry.metadata.repositories.daily_usage import DAY
from registry.metadata.repositories.stale import LastUse
from registry.metadata.storage_usage import NamedRepository
from registry.services import storage_usage as storage
from registry.services.blobs.damage import list_damaged
from registry.services.repositories.daily_usage import StorageHistory, list_stale, read_history
from registry.services.storage_usage import ImageStorageAnswer, RepositoryStorage, StorageUsage


class UsageQuery(msgspec.Struct):
    """Options of the storage usage of an account."""

    group_by: Literal["repository"] | None = None
    """Add the usage of each repository."""


class RestorableStorageAnswer(RepositoryStorage):
    """The storage used by a repository, and the bytes that its deleted images still hold."""

    restorable_bytes: int


class RepositoryUsage(RepositoryStorage):
    """A repository's part of its account's storage."""

    repository: ResourceRef
    image_count: int


Damage = Literal["absent", "size", "digest", "unreadable"]


class DamagedImageAnswer(ResponseBody):
    """An image that needs a damaged blob."""

    repository: ResourceRef
    digest: str
    tags: Sequence[str]
    """Its tags, and those of indexes that list it; the first five."""


class DamagedBlobAnswer(ResponseBody):
    """A blob whose stored bytes are missing or wrong. A push of the same bytes heals it."""

    digest: str
    size_bytes: int
    damage: Damage
    """The bytes are absent, of another size, of another digest, or unreadable."""
    found_at: RFC3339
    images: Sequence[DamagedImageAnswer]
    """Images that need it; 100 at most over all damaged blobs."""


class StorageUsageAnswer(StorageUsage):
    """The storage used by an account. Deleting frees nothing at once; the collector does later."""

    plain_blobs: int
    """Blobs that are stored unencrypted; counted up to 10,000."""
    plain_bytes: int
    """Bytes on disk of these blobs."""
    damaged_blobs: Sequence[DamagedBlobAnswer]
    """Blobs that a pull, a push, `scrub` or `fsck` found damaged, by digest; the first 100."""
    as_of: RFC3339
    repositories: Sequence[RepositoryUsage] | UnsetType = UNSET
    """By the bytes that deleting them would free, largest first; only with ``group_by``."""


_IMAGE: Final = RecordAnswers(
    ImageStorageAnswer, "storage", ImageStorageAnswer, noun="image's storage"
)
_REPOSITORY: Final = RecordAnswers(
    RestorableStorageAnswer, "storage", noun="repository's storage", named="RepositoryStorage"
)
_ACCOUNT: Final = RecordAnswers(
    StorageUsageAnswer, "storage_usage", StorageUsageAnswer, noun="account's storage usage"
)


@_IMAGE.gets(f"{PATH}/images/{{digest:str}}/storage", "registry:DescribeImages")
async def get_image_storage(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return the bytes an image uses, and those that deleting it would free."""
    found = await authorized_own(ctx, repository_id)
    return _IMAGE.wrapped(
        await ctx.database.read(storage.measure_image, found, digest, ctx.clock())
    )


@_REPOSITORY.gets(f"{PATH}/storage", "registry:DescribeRepositories")
async def get_repository_storage(repository_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return the bytes a repository uses, and those that deleting it would free."""
    found = await authorized_repository(ctx, repository_id)
    account_id = found.account_id
    measured = await storage.measure_repository(ctx.database, account_id, found.id)
    restorable = await storage.measure_restorable(ctx.database, account_id, found.id, ctx.clock())
    return _REPOSITORY.one(measured, restorable_bytes=restorable)


@_ACCOUNT.gets("/v1/storage-usage", "registry:DescribeStorageUsage", query=UsageQuery)
async def get_storage_usage(ctx: Context) -> ResponseBody:
    """Return the bytes the account uses, and what deduplication saves."""
    query, account_id = ctx.query(UsageQuery), authorized_for_all(ctx)
    now = ctx.clock()
    usage, repositories = await storage.measure_account(ctx.database, account_id, now)
    damaged = await ctx.database.read(list_damaged, account_id)
    plain = await ctx.database.read(estimate_plain_of, account_id)
    return _ACCOUNT.wrapped(
        StorageUsageAnswer(
            **structs.asdict(usage),
            plain_blobs=plain.object_count,
            plain_bytes=plain.stored_bytes,
            damaged_blobs=[_damaged(ctx, account_id, *each) for each in damaged],
            as_of=rfc3339(now),
            repositories=UNSET
            if query.group_by is None
            else [_usage(ctx, account_id, *each) for each in repositories],
        )
    )


def _usage(
    ctx: RequestContext, account_id: str, named: NamedRepository, measured: RepositoryStorage
) -> RepositoryUsage:
    reference = reference_of(ctx, account_id, named.id, named.name)
    return answer_of(RepositoryUsage, measured, repository=reference, image_count=named.image_count)


def _damaged(
    ctx: RequestContext, account_id: str, found: DamagedObject, images: Sequence[DamagedImage]
) -> DamagedBlobAnswer:
    return answer_of(
        DamagedBlobAnswer,
        found,
        size_bytes=found.size,
        found_at=rfc3339(found.damaged_at),
        images=[
            answer_of(
                DamagedImageAnswer,
                image,
                repository=reference_of(ctx, account_id, image.repository_id, image.repository),
            )
            for image in images
        ],
    )


_MOST: Final = 20


class HistoryQuery(msgspec.Struct):
    """How many days of history to return."""

    days: Annotated[int, Meta(ge=1, le=366)] = 30
    """The number of days until today."""


class StaleQuery(PageQuery):
    """The filter of a list of stale repositories."""

    days: Annotated[int, Meta(ge=1, le=3660)] = 90
    """Neither pushed to nor pulled from for that many days."""


_HISTORY: Final = RecordAnswers(StorageHistory, "storage_history", StorageHistory)


@_HISTORY.gets("/v1/storage-usage/history", "registry:DescribeStorageUsage", query=HistoryQuery)
async def get_storage_history(ctx: Context) -> ResponseBody:
    """Return the account's storage and pulls by day, and what grew; kept for 400 days."""
    account_id = authorized_for_all(ctx)
    days = ctx.query(HistoryQuery).days
    region, now = ctx.settings.region, ctx.clock()
    return _HISTORY.wrapped(
        await ctx.database.read(read_history, account_id, region, now, days, _MOST)
    )


@REPOSITORIES.lists("/v1/repositories/stale", "registry:DescribeRepositories", StaleQuery)
async def list_stale_repositories(ctx: Context) -> ResponseBody:
    """List the repositories that hold bytes and were not used lately, the longest unused first.

    Use is a push or a pull. Repositories are measured every six hours; one that was used since is
    left out, so a page may be short and not the last.
    """
    account_id = authorized_for_all(ctx)
    query = ctx.query(StaleQuery)
    pager = ctx.pager(query)
    after = None if pager.position is None else LastUse(*pager.position)
    before = ctx.clock() - query.days * DAY
    found = await ctx.database.read(list_stale, account_id, before, after, pager.wanted)
    cut, meta = pager.cut(found.uses, found.total, key=tuple)
    shown = (found.repositories.get(each.repository_id) for each in cut)
    return REPOSITORIES.many([REPOSITORIES.show(ctx, each) for each in shown if each], meta)
