"""What is stored: of one image, one repository, the whole account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath
from msgspec import UNSET, UnsetType

from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.references import ResourceRef
from cloudcore.wire import RFC3339, ResponseBody, rfc3339
from registry.control.repositories import authorized
from registry.control.visible_repositories import PATH, authorized_own
from registry.metadata.blobs.damage import DamagedImage, DamagedObject
from registry.metadata.storage_usage import NamedRepository
from registry.services import storage_usage as storage
from registry.services.access import repository_crn
from registry.services.blobs.damage import list_damaged
from registry.services.storage_usage import RepositoryStorage


class UsageQuery(msgspec.Struct):
    """How usage is told."""

    group_by: Literal["repository"] | None = None
    """Tell each repository's part too."""


class ImageStorageAnswer(ResponseBody):
    """What an image takes, with everything under it if it is an index."""

    size_bytes: int
    """Of its distinct blobs."""
    exclusive_bytes: int
    """What deleting it, and then the children that nothing else uses, would free."""
    shared_bytes: int
    """What other images of the account need too."""
    freed_bytes: int
    """What deleting it alone would free; an index leaves its children."""
    restorable_bytes: int
    """The part of `exclusive_bytes` that something deleted holds while it can be restored."""
    unused_children: int
    """How many images under this index nothing else uses."""
    unused_digests: Sequence[str]
    """Those: an index before what it lists, so they can be deleted in this order after it."""


class OneImageStorage(ResponseBody):
    """What an image takes, wrapped."""

    storage: ImageStorageAnswer


class RepositoryStorageAnswer(ResponseBody):
    """What a repository takes."""

    logical_bytes: int
    """What its images would take if each kept copies of its own."""
    size_bytes: int
    """Of its distinct blobs."""
    exclusive_bytes: int
    """What deleting it would free."""
    shared_bytes: int
    """What other repositories of the account need too."""


class RestorableStorageAnswer(RepositoryStorageAnswer):
    """What a repository takes, and what its deleted images hold beside that."""

    restorable_bytes: int


class OneRepositoryStorage(ResponseBody):
    """What a repository takes, wrapped."""

    storage: RestorableStorageAnswer


class RepositoryUsage(RepositoryStorageAnswer):
    """A repository's part of what its account takes."""

    repository: ResourceRef
    image_count: int


Damage = Literal["absent", "size", "digest", "unreadable"]


class DamagedImageAnswer(ResponseBody):
    """An image that needs a damaged blob."""

    repository: ResourceRef
    digest: str


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
    """What an account takes. Deleting frees nothing at once; the collector does, later."""

    logical_bytes: int
    """What its images would take if each kept copies of its own."""
    unique_bytes: int
    """Of the distinct blobs that its images need."""
    dedup_ratio: float
    """`logical_bytes` by `unique_bytes`."""
    stored_bytes: int
    """On disk, of all its blobs."""
    restorable_bytes: int
    """The part of that which only what can be restored holds."""
    pending_sweep_bytes: int
    """The part of that which nothing needs, or nothing yet."""
    damaged_blobs: Sequence[DamagedBlobAnswer]
    """Blobs that a pull, a push or `fsck` found damaged, by digest; the first 100."""
    as_of: RFC3339
    repositories: Sequence[RepositoryUsage] | UnsetType = UNSET
    """The largest first, by what deleting them would free; only if asked for."""


class OneStorageUsage(ResponseBody):
    """What an account takes, wrapped."""

    storage_usage: StorageUsageAnswer


@get(f"{PATH}/images/{{digest:str}}/storage", opt={"action": "registry:DescribeImages"})
async def get_image_storage(
    repository_id: FromPath[str], digest: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OneImageStorage:
    """Say what an image takes, and what deleting it would free."""
    found = await authorized_own(ctx, repository_id)
    measured = await ctx.database.read(storage.measure_image, found, digest, ctx.clock())
    return OneImageStorage(
        storage=ImageStorageAnswer(
            **measured._asdict(),
            shared_bytes=measured.shared_bytes,
            unused_children=len(measured.unused_digests),
        )
    )


@get(f"{PATH}/storage", opt={"action": "registry:DescribeRepositories"})
async def get_repository_storage(
    repository_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OneRepositoryStorage:
    """Say what a repository takes, and what deleting it would free."""
    found = await authorized(ctx, repository_id)
    account_id = found.account_id
    measured = await storage.measure_repository(ctx.database, account_id, found.id)
    restorable = await storage.measure_restorable(ctx.database, account_id, found.id, ctx.clock())
    return OneRepositoryStorage(
        storage=RestorableStorageAnswer(
            **measured._asdict(),
            shared_bytes=measured.shared_bytes,
            restorable_bytes=restorable,
        )
    )


@get(
    "/v1/storage-usage",
    opt={"action": "registry:DescribeStorageUsage", "query": UsageQuery},
)
async def get_storage_usage(ctx: NamedDependency[RequestContext]) -> OneStorageUsage:
    """Say what the account takes, and what deduplication saves."""
    account_id = account_of(ctx)
    query = ctx.query(UsageQuery)
    ctx.authorize(repository_crn(ctx.settings.region, account_id, "*"))
    measured = await storage.measure_account(ctx.database, account_id, ctx.clock())
    damaged = await list_damaged(ctx.database, account_id)
    return OneStorageUsage(
        storage_usage=StorageUsageAnswer(
            logical_bytes=measured.logical_bytes,
            unique_bytes=measured.unique_bytes,
            dedup_ratio=measured.dedup_ratio,
            stored_bytes=measured.stored_bytes,
            restorable_bytes=measured.restorable_bytes,
            pending_sweep_bytes=measured.pending_sweep_bytes,
            damaged_blobs=[_damaged(ctx, account_id, *each) for each in damaged],
            as_of=rfc3339(measured.as_of),
            repositories=UNSET
            if query.group_by is None
            else [_usage(ctx, account_id, *each) for each in measured.repositories],
        )
    )


def _usage(
    ctx: RequestContext, account_id: str, named: NamedRepository, measured: RepositoryStorage
) -> RepositoryUsage:
    crn = repository_crn(ctx.settings.region, account_id, named.name)
    return RepositoryUsage(
        repository=ResourceRef(id=named.id, crn=crn, name=named.name),
        image_count=named.image_count,
        **measured._asdict(),
        shared_bytes=measured.shared_bytes,
    )


def _damaged(
    ctx: RequestContext, account_id: str, found: DamagedObject, images: Sequence[DamagedImage]
) -> DamagedBlobAnswer:
    return DamagedBlobAnswer(
        digest=found.digest,
        size_bytes=found.size,
        damage=msgspec.convert(found.damage, Damage),
        found_at=rfc3339(found.damaged_at),
        images=[
            DamagedImageAnswer(
                repository=ResourceRef(
                    id=image.repository_id,
                    crn=repository_crn(ctx.settings.region, account_id, image.repository),
                    name=image.repository,
                ),
                digest=image.digest,
            )
            for image in images
        ],
    )


HANDLERS: Final = (get_image_storage, get_repository_storage, get_storage_usage)
