"""The registry's family in every edition: its background work, and the ports it offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.family import Runtime
from cloudcore.jobs.schedule import Scheduled, scheduled
from registry.composition.needs import OFFERS, open_needs
from registry.composition.stores import RegistryStores
from registry.gc import fsck, orphans, purge
from registry.gc.collection import collection_kind
from registry.gc.data_keys import shred_deleted_keys
from registry.gc.scrub import scrub_chores
from registry.gc.seal_run import seal_chores
from registry.metadata import logins, quotas
from registry.metadata.blobs import upload_quota
from registry.metadata.event_rules import EVENT_RULES
from registry.metadata.images import relations
from registry.metadata.pull_through import lookups
from registry.metadata.pull_through.tables import CACHE_RULES
from registry.metadata.repositories.daily_usage import forget_account_days, forget_days
from registry.metadata.storage_usage import stored_by_account
from registry.services import collector_runs
from registry.services.blobs.rewrapping import rewrap_kind
from registry.services.lifecycle import runs
from registry.services.pull_through import retention
from registry.services.repositories import daily_usage, search
from registry.services.resource_kinds import STORAGE

_HOUR: Final = 3600
_PURGE_SECONDS: Final = 60
_COLLECT_SECONDS: Final = 300

_CHORES: Final = scheduled(
    ("registry.expired_uploads", _HOUR, purge.discard_expired_uploads),
    ("registry.ended_uploads", _HOUR, purge.forget_ended_uploads),
    ("registry.deleted_repositories", _PURGE_SECONDS, purge.purge_deleted_repositories),
    ("registry.deleted_images", _PURGE_SECONDS, purge.purge_tombstones),
    ("registry.deleted_tags", _PURGE_SECONDS, purge.purge_deleted_tags),
    ("registry.deleted_keys", _PURGE_SECONDS, shred_deleted_keys),
    ("registry.lifecycle", _PURGE_SECONDS, runs.start_due_runs),
    ("registry.garbage_collection", _COLLECT_SECONDS, collector_runs.start_due_collections),
    ("registry.repository_days", daily_usage.EVERY_SECONDS, daily_usage.measure_repositories),
    ("registry.cached_images", retention.EVERY_SECONDS, retention.expire_cached_images),
    ("registry.search_index", search.EVERY_SECONDS, search.index_names),
    ("registry.stored_bytes", fsck.RECOUNT_EVERY_SECONDS, fsck.recount_bytes),
    ("registry.tag_history", _HOUR, purge.forget_tag_history),
)


def _schedule(stores: RegistryStores) -> Sequence[Scheduled]:
    ctx, store, settings = stores.ctx, stores.store, stores.settings
    scan = orphans.OrphanScan(ctx, store).turn
    return [
        *_CHORES(ctx),
        Scheduled("registry.orphan_scan", orphans.EVERY_SECONDS, scan),
        *scrub_chores(ctx, store, settings.scrubbing, stores.buckets),
        *seal_chores(ctx, store, settings.plain_sealing.seal_rate_bytes),
    ]


BACKGROUND: Final[Runtime[RegistryStores]] = Runtime(
    open=open_needs,
    offers=OFFERS,
    provided=lambda stores: stores.ctx,
    job_kinds=lambda stores: (
        runs.lifecycle_kind(stores.ctx),
        collection_kind(stores.ctx, stores.store),
        rewrap_kind(stores.ctx),
    ),
    schedule=_schedule,
    expiry=(
        logins.forget_expired,
        relations.forget_expired,
        forget_days,
        forget_account_days,
        lookups.forget_lookups,
        lookups.forget_referrers,
        lookups.forget_tags,
    ),
    samples={STORAGE.name: stored_by_account},
    uses=(
        EVENT_RULES.counted,
        logins.OPEN,
        CACHE_RULES.counted,
        quotas.COUNTED_BYTES,
        upload_quota.COUNTED,
        *quotas.COUNTED_RESOURCES,
    ),
)
