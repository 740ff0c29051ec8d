"""The registry's family: repositories, images and tags, with their background work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from registry.quotas import QUOTAS
from registry.services import resource_kinds
from registry.services.resource_kinds import REGISTRY_SKUS, STORAGE

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.db.rows import Forget
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.metering.sampling import Measure
    from cloudcore.ports import Offer, Opening
    from cloudcore.quotas.limits import Counted
    from registry.composition.stores import RegistryStores
    from registry.services.context import ServiceContext

_HOUR: Final = 3600
_PURGE_SECONDS: Final = 60
_COLLECT_SECONDS: Final = 300


async def _open(opening: Opening) -> RegistryStores:
    from registry.composition import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _offers() -> Sequence[Offer]:
    from registry.composition import needs  # noqa: PLC0415 - SQLAlchemy

    return needs.OFFERS


def _routes() -> Sequence[HTTPRouteHandler]:
    from registry.control import routes  # noqa: PLC0415 - the web framework

    return routes.HANDLERS


def _services(stores: RegistryStores) -> ServiceContext:
    return stores.ctx


def _job_kinds(stores: RegistryStores) -> Sequence[JobKind]:
    from registry.gc.collection import collection_kind  # noqa: PLC0415 - SQLAlchemy
    from registry.services.blobs.rewrapping import rewrap_kind  # noqa: PLC0415
    from registry.services.lifecycle.runs import lifecycle_kind  # noqa: PLC0415

    ctx = stores.ctx
    return (lifecycle_kind(ctx), collection_kind(ctx, stores.store), rewrap_kind(ctx))


def _schedule(stores: RegistryStores) -> Sequence[Scheduled]:
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415 - SQLAlchemy
    from registry.gc import fsck, orphans  # noqa: PLC0415
    from registry.gc.data_keys import shred_deleted_keys  # noqa: PLC0415
    from registry.gc.purge import (  # noqa: PLC0415
        discard_expired_uploads,
        forget_ended_uploads,
        forget_tag_history,
        purge_deleted_repositories,
        purge_deleted_tags,
        purge_tombstones,
    )
    from registry.gc.scrub import scrub_chores  # noqa: PLC0415
    from registry.gc.seal_run import seal_chores  # noqa: PLC0415
    from registry.services import collector_runs as collection  # noqa: PLC0415
    from registry.services.lifecycle import runs  # noqa: PLC0415
    from registry.services.pull_through import retention  # noqa: PLC0415
    from registry.services.repositories import days, search  # noqa: PLC0415

    ctx = stores.ctx
    chores = [
        Scheduled(name, seconds, run)
        for name, seconds, run in (
            ("registry.expired_uploads", _HOUR, partial(discard_expired_uploads, ctx)),
            ("registry.ended_uploads", _HOUR, partial(forget_ended_uploads, ctx)),
            (
                "registry.deleted_repositories",
                _PURGE_SECONDS,
                partial(purge_deleted_repositories, ctx),
            ),
            ("registry.deleted_images", _PURGE_SECONDS, partial(purge_tombstones, ctx)),
            ("registry.deleted_tags", _PURGE_SECONDS, partial(purge_deleted_tags, ctx)),
            ("registry.deleted_keys", _PURGE_SECONDS, partial(shred_deleted_keys, ctx)),
            ("registry.lifecycle", _PURGE_SECONDS, partial(runs.start_due_runs, ctx)),
            (
                "registry.garbage_collection",
                _COLLECT_SECONDS,
                partial(collection.start_due_collections, ctx),
            ),
            (
                "registry.orphan_scan",
                orphans.EVERY_SECONDS,
                orphans.OrphanScan(ctx, stores.store).turn,
            ),
            (
                "registry.repository_days",
                days.EVERY_SECONDS,
                partial(days.measure_repositories, ctx),
            ),
            (
                "registry.cached_images",
                retention.EVERY_SECONDS,
                partial(retention.expire_cached_images, ctx),
            ),
            ("registry.search_index", search.EVERY_SECONDS, partial(search.index_names, ctx)),
            ("registry.stored_bytes", fsck.RECOUNT_EVERY_SECONDS, partial(fsck.recount_bytes, ctx)),
            ("registry.tag_history", _HOUR, partial(forget_tag_history, ctx)),
        )
    ]
    settings = stores.settings
    return [
        *chores,
        *scrub_chores(ctx, stores.store, settings.scrubbing, stores.buckets),
        *seal_chores(ctx, stores.store, settings.plain_sealing.seal_rate_bytes),
    ]


def _expiry() -> Sequence[Forget]:
    from registry.metadata import logins  # noqa: PLC0415 - SQLAlchemy
    from registry.metadata.images import relations  # noqa: PLC0415 - SQLAlchemy
    from registry.metadata.pull_through import lookups  # noqa: PLC0415 - SQLAlchemy
    from registry.metadata.repositories import daily_usage  # noqa: PLC0415 - SQLAlchemy

    return (
        logins.forget_expired,
        relations.forget_expired,
        daily_usage.forget_days,
        daily_usage.forget_account_days,
        lookups.forget_lookups,
        lookups.forget_referrers,
        lookups.forget_tags,
    )


def _samples() -> Mapping[str, Measure]:
    from registry.metadata.storage_usage import stored_by_account  # noqa: PLC0415 - SQLAlchemy

    return {STORAGE.name: stored_by_account}


def _uses() -> Sequence[Counted]:
    from registry.metadata import (  # noqa: PLC0415 - SQLAlchemy
        event_rules,
        logins,
        quotas,
    )
    from registry.metadata.blobs import upload_quota  # noqa: PLC0415 - SQLAlchemy
    from registry.metadata.pull_through import rules  # noqa: PLC0415 - SQLAlchemy

    return (
        *(event_rules.COUNTED, logins.OPEN, rules.COUNTED),
        *(quotas.COUNTED_BYTES, upload_quota.COUNTED, *quotas.COUNTED_RESOURCES),
    )


REGISTRY: Final[Family[RegistryStores]] = Family(
    name="registry",
    title="Repositories",
    paths=(
        "/v1/authorization-token",
        "/v1/encryption-binding",
        "/v1/encryption-bindings",
        "/v1/event-rules",
        "/v1/garbage-collection",
        "/v1/key-usage",
        "/v1/pull-through-cache-rules",
        "/v1/registry-settings",
        "/v1/repositories",
        "/v1/storage-usage",
    ),
    open=_open,
    uses=_uses,
    offers=_offers,
    routes=_routes,
    provided=_services,
    job_kinds=_job_kinds,
    schedule=_schedule,
    expiry=_expiry,
    skus=REGISTRY_SKUS,
    samples=_samples,
    resource_kinds=(
        resource_kinds.REPOSITORY,
        resource_kinds.EVENT_RULE,
        resource_kinds.PULL_THROUGH_CACHE_RULE,
        resource_kinds.AUTHORIZATION_TOKEN,
        resource_kinds.REGISTRY_SETTINGS,
    ),
    foreign_kinds=(resource_kinds.TOPIC,),
    policy_templates=resource_kinds.TEMPLATES,
    other_events=(
        "registry.image.deleted",
        "registry.image.pushed",
        "registry.image.cached",
        "registry.lifecycle.completed",
        "registry.repository.created",
        "registry.repository.deleted",
        "registry.tag.deleted",
        "registry.tag.moved",
    ),
    event_words={
        "registry.image.cached": "An image was fetched by the pull-through cache",
        "registry.tag.moved": "A tag was created, moved or restored",
        "registry.lifecycle.completed": "A run of a lifecycle policy has ended",
    },
    recorded_actions=(
        "registry:CollectGarbage",
        "registry:ExpireCachedImages",
        "registry:RunLifecyclePolicy",
    ),
    quotas=QUOTAS,
    commands=(
        CommandGroup("sign in", ("registry.cli.commands.login",)),
        CommandGroup(
            "use a registry",
            (
                "registry.cli.commands.repositories",
                "registry.cli.commands.images",
                "registry.cli.commands.tags",
                "registry.cli.commands.repository_policies",
                "registry.cli.commands.lifecycle",
                "registry.cli.commands.mirrors",
                "registry.cli.commands.storage",
            ),
        ),
        CommandGroup(
            "set up an account",
            (
                "registry.cli.commands.settings",
                "registry.cli.commands.keys",
                "registry.cli.commands.encryption",
                "registry.cli.commands.events",
                "registry.cli.commands.gc",
                "registry.cli.commands.audit",
                "registry.cli.commands.usage",
                "registry.cli.commands.quotas",
                "registry.cli.commands.invoices",
            ),
        ),
        CommandGroup(
            "run a registry",
            (
                "registry.cli.server.commands",
                "registry.cli.server.data_commands",
                "registry.cli.server.config",
            ),
        ),
    ),
)
