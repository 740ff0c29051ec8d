"""Storage used by images, repositories and the account, its history, and stale repositories."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec
from litestar import get
from litestar.params import FromPath
from msgspec import UNSET, Meta, UnsetType

from cloudcore.web.answers import answer_of
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
from registry.services.repositories.daily_usage import AccountHistory, list_stale, read_history
from registry.services.storage_usage import RepositoryStorage


class UsageQuery(msgspec.Struct):
    """Options of the storage usage of an account."""

    group_by: Literal["repository"] | None = None
    """Add the usage of each repository."""


class ImageStorageAnswer(ResponseBody):
    """The storage used by an image; by an index with all images under it."""

    size_bytes: int
    """Bytes of its distinct blobs."""
    exclusive_bytes: int
    """Bytes freed by deleting it, and then the children that nothing else uses."""
    shared_bytes: int
    """Bytes that other images of the account need too."""
    freed_bytes: int
    """Bytes freed by deleting it alone, without the children of an index."""
    restorable_bytes: int
    """The part of `exclusive_bytes` that restorable deleted images hold too."""
    unused_children: int
    """Number of images under this index that nothing else uses."""
    unused_digests: Sequence[str]
    """Their digests, an index before the images it lists: the order in which to delete them."""


class OneImageStorage(ResponseBody):
    """The body of an answer: the storage used by an image."""

    storage: ImageStorageAnswer


class RepositoryStorageAnswer(ResponseBody):
    """The storage used by a repository."""

    logical_bytes: int
    """Bytes its images would take if each had copies of its own."""
    size_bytes: int
    """Bytes of its distinct blobs."""
    exclusive_bytes: int
    """Bytes freed by deleting it."""
    shared_bytes: int
    """Bytes that other repositories of the account need too."""


class RestorableStorageAnswer(RepositoryStorageAnswer):
    """The storage used by a repository, and the bytes that its deleted images hold besides."""

    restorable_bytes: int


class OneRepositoryStorage(ResponseBody):
    """The body of an answer: the storage used by a repository."""

    storage: RestorableStorageAnswer


class RepositoryUsage(RepositoryStorageAnswer):
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


class StorageUsageAnswer(ResponseBody):
    """The storage used by an account. Deleting frees nothing at once; the collector does later."""

    logical_bytes: int
    """Bytes its images would take if each had copies of its own."""
    unique_bytes: int
    """Bytes of the distinct blobs that its images need."""
    dedup_ratio: float
    """`logical_bytes` by `unique_bytes`."""
    stored_bytes: int
    """Bytes on disk of all its blobs."""
    compression_saved_bytes: int
    """Bytes on disk that compression saves, of `unique_bytes`."""
    restorable_bytes: int
    """The part of `stored_bytes` that only restorable images and repositories hold."""
    pending_sweep_bytes: int
    """The part of `stored_bytes` that nothing needs, or nothing yet."""
    plain_blobs: int
    """Blobs that are stored unencrypted; counted up to 10,000."""
    plain_bytes: int
    """Bytes on disk of these blobs."""
    damaged_blobs: Sequence[DamagedBlobAnswer]
    """Blobs that a pull, a push, `scrub` or `fsck` found damaged, by digest; the first 100."""
    as_of: RFC3339
    repositories: Sequence[RepositoryUsage] | UnsetType = UNSET
    """By the bytes that deleting them would free, largest first; only with ``group_by``."""


class OneStorageUsage(ResponseBody):
    """The body of an answer: the storage used by an account."""

    storage_usage: StorageUsageAnswer


@get(f"{PATH}/images/{{digest:str}}/storage", opt={"action": "registry:DescribeImages"})
async def get_image_storage(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context
) -> OneImageStorage:
    """Return the bytes an image uses, and those that deleting it would free."""
    found = await authorized_own(ctx, repository_id)
    measured = await ctx.database.read(storage.measure_image, found, digest, ctx.clock())
    return OneImageStorage(
        storage=answer_of(
            ImageStorageAnswer, measured, unused_children=len(measured.unused_digests)
        )
    )


@get(f"{PATH}/storage", opt={"action": "registry:DescribeRepositories"})
async def get_repository_storage(
    repository_id: FromPath[str], ctx: Context
) -> OneRepositoryStorage:
    """Return the bytes a repository uses, and those that deleting it would free."""
    found = await authorized_repository(ctx, repository_id)
    account_id = found.account_id
    measured = await storage.measure_repository(ctx.database, account_id, found.id)
    restorable = await storage.measure_restorable(ctx.database, account_id, found.id, ctx.clock())
    return OneRepositoryStorage(
        storage=answer_of(RestorableStorageAnswer, measured, restorable_bytes=restorable)
    )


@get("/v1/storage-usage", opt={"action": "registry:DescribeStorageUsage", "query": UsageQuery})
async def get_storage_usage(ctx: Context) -> OneStorageUsage:
    """Return the bytes the account uses, and what deduplication saves."""
    query, account_id = ctx.query(UsageQuery), authorized_for_all(ctx)
    measured = await storage.measure_account(ctx.database, account_id, ctx.clock())
    damaged = await ctx.database.read(list_damaged, account_id)
    plain = await ctx.database.read(estimate_plain_of, account_id)
    return OneStorageUsage(
        storage_usage=answer_of(
            StorageUsageAnswer,
            measured,
            plain_blobs=plain.object_count,
            plain_bytes=plain.stored_bytes,
            damaged_blobs=[_damaged(ctx, account_id, *each) for each in damaged],
            repositories=UNSET
            if query.group_by is None
            else [_usage(ctx, account_id, *each) for each in measured.repositories],
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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class HistoryQuery(msgspec.Struct):
    """The days to return."""

    days: Annotated[int, Meta(ge=1, le=366)] = 30
    """The number of days until today."""


class StaleQuery(PageQuery):
    """Which repositories are stale."""

    days: Annotated[int, Meta(ge=1, le=3660)] = 90
    """Neither pushed to nor pulled from for that many days."""


class DayAnswer(ResponseBody):
    """One day, in UTC."""

    day: str
    """As ``2026-01-31``."""
    size_bytes: int
    """Sum of the sizes of its repositories, as last measured on that day."""
    pulls: int
    """Manifests that were pulled, but for pullers that do not count."""


class GrowthAnswer(ResponseBody):
    """How the size of a repository has changed."""

    repository: ResourceRef
    size_bytes_before: int
    """On its first day of the span with a measurement; 0 if it did not exist."""
    size_bytes: int
    """When it was last measured; that is every six hours."""


class StorageHistory(ResponseBody):
    """The days that were recorded, oldest first, and the 20 repositories that changed most."""

    days: Sequence[DayAnswer]
    growth_days: int
    """The days over which repositories are compared: the least of 7, 30, 90 and 366 that is not
    below `days`."""
    repositories: Sequence[GrowthAnswer]


class OneStorageHistory(ResponseBody):
    """The body of an answer: a storage history."""

    storage_history: StorageHistory


@get(
    "/v1/storage-usage/history",
    opt={"action": "registry:DescribeStorageUsage", "query": HistoryQuery},
)
async def get_storage_history(ctx: Context) -> OneStorageHistory:
    """Return the account's storage and pulls by day, and what grew; kept for 400 days."""
    account_id = authorized_for_all(ctx)
    days = ctx.query(HistoryQuery).days
    found = await ctx.database.read(read_history, account_id, ctx.clock(), days, _MOST)
    return OneStorageHistory(storage_history=_answer(ctx, account_id, found))


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


def _answer(ctx: RequestContext, account_id: str, found: AccountHistory) -> StorageHistory:
    return StorageHistory(
        days=[
            answer_of(DayAnswer, each, day=f"{_EPOCH + timedelta(days=each.day):%Y-%m-%d}")
            for each in found.days
        ],
        growth_days=found.growth_days,
        repositories=[
            answer_of(
                GrowthAnswer,
                each,
                repository=reference_of(ctx, account_id, each.repository_id, each.name),
                size_bytes_before=each.before,
            )
            for each in found.growth
        ],
    )
