"""Join the nodes that serve the same install: same settings, same root key, same blobs.

Responses must not depend on the node. So a node refuses to start if it differs from the others in a
setting whose value clients notice, or that a node uses when it decides for another node.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.opening import is_postgresql
from cloudcore.errors import Conflict, PlatformError, Unavailable
from cloudcore.nodes.fleet import Difference, Differs, check_same, join
from cloudcore.nodes.rows import note_stopped
from cloudcore.nodes.watcher import Check, identity_of
from registry.blobstore.base import ObjectDamaged, ObjectUnknown
from registry.blobstore.store import BlobStore
from registry.composition.stores import RegistryStores
from registry.metadata.collector import generations
from registry.services.context import ServiceContext
from registry.settings.reading import values_of
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

SHARED_SETTINGS: Final = (
    *("public_url", "allowed_hosts", "family_hosts", "s3_host", "s3_any_region", "region"),
    *("founders", "operators", "container_password_seconds", "audit_seconds"),
    *("sealing", "kms_provider", "kms_aws_key", "cors_origins", "mirrors"),
    *("oidc_internal_origins", "upstream_allowed", "webhook_allowed", "smtp_from"),
    *("certificate_grants", "certificate_zone", "certificate_url", "dns_name_servers"),
    *("certificate_acme_directory", "payment_processor", "stripe_endpoint"),
    *("email_sending", "email_rate", "bounce_domain", "store_s3_bucket", "store_s3_prefix"),
    *("max_blob_bytes", "upload_idle_seconds", "max_open_uploads", "max_bucket_bytes"),
    *("max_open_uploads_per_repository", "inline_max_bytes", "touch_after_seconds"),
    *("gc_grace_seconds", "gc_condemned_seconds", "gc_quarantine_seconds", "gc_orphan_seconds"),
    # The node that takes a request allots them to resources that are placed on another.
    *("database_ports", "network_ipv6_ranges", "balancer_vips"),
)
"""The settings that must be the same on all nodes; none of them is secret."""
_BUCKETS: Final = "buckets"
"""Name of the folder of bucket objects among the values that nodes compare."""
_LOOKS: Final = 50
_LOOK_SECONDS: Final = 0.1
_OLD: Final = 15 * 60 * MICROSECONDS
"""A store whose generation is older than the newest one by this much is not in use."""

_log = logging.getLogger(__name__)


def shared_settings(settings: Settings) -> Mapping[str, str]:
    """Map each setting that all nodes must share to its value, as text."""
    values = values_of(settings)
    found = {name: str(values[name]) for name in SHARED_SETTINGS}
    if not settings.public_url:
        found["public_url"] = settings.url
    catalog = "the program's"  # one version may have other prices than the next beside it
    if settings.catalog_file:
        catalog = f"SHA-256 {sha256(settings.catalog.read_bytes()).hexdigest()[:16]}"
    return found | {"contents of catalog_file": catalog}


async def join_fleet(settings: Settings, stores: RegistryStores) -> None:
    """Register this node with the running ones, if it may join them.

    Raise `SettingsError` if another node has this node's name, if settings or blob store are not
    those of the running nodes, or if a PostgreSQL database, which nodes may share, is out of reach.
    """
    ctx = stores.ctx
    node = settings.node.node(settings.data)
    try:
        identity = identity_of(node.folder)  # blocks, but nothing is served yet
        joined = await ctx.database.write(
            join, node, identity, _own_settings(settings), ctx.clock()
        )
    except Conflict as error:
        raise SettingsError(f"node_name: {error}") from None
    except (OSError, Unavailable) as error:
        if is_postgresql(settings.database):  # an unregistered node would never be checked again
            raise SettingsError(
                f"whether this node may join is not known: {error}; start it again"
            ) from None
        # SQLite: all processes are on this machine. A full disk still serves what it has.
        _log.warning("whether other nodes run with other settings is not known: %s", error)
        return
    if joined.differences:
        raise SettingsError(_refusal(joined.differences, joined.others))
    if joined.others:
        try:
            await _check_store(settings, stores, joined.others)
        except (SettingsError, PlatformError):
            with suppress(Unavailable):
                await ctx.database.write(note_stopped, node.name, identity, ctx.clock())
            raise


def check_of(settings: Settings) -> Check:
    """Return a check that nodes started while this one was silent have the same settings.

    On SQLite, where all processes run on one machine, the check compares nothing.
    """
    shared: Mapping[str, str] = {}
    if is_postgresql(settings.database):  # else all processes run on one machine
        with suppress(OSError):  # the disk is full: `join_fleet` has logged it
            shared = _own_settings(settings)
    return partial(check_same, settings=shared)


def end_if_differs(error: Conflict) -> None:
    """Shut this process down if `error` says that its settings differ from those of other nodes."""
    if isinstance(error, Differs):
        os.kill(os.getpid(), signal.SIGTERM)


def _own_settings(settings: Settings) -> Mapping[str, str]:
    """Return the values that nodes compare: shared settings, and the folder of buckets."""
    shared = dict(shared_settings(settings))
    if not settings.store.store_s3_bucket:
        shared[_BUCKETS] = f"the folder {identity_of(settings.buckets)}"
    return shared


async def _check_store(settings: Settings, stores: RegistryStores, others: Sequence[str]) -> None:
    """Raise `SettingsError` if the running nodes, named in `others`, use another blob store."""
    if await _is_their_store(stores.ctx, stores.store):
        return
    bucket = settings.store.store_s3_bucket
    place = f"the bucket {bucket} of store_s3_endpoint" if bucket else str(settings.blobs)
    raise SettingsError(
        f"{place} has not the blobs of the nodes that run ({', '.join(others)}):"
        f" all nodes have one store{'' if bucket else '; is its disk mounted?'}"
    )


async def _is_their_store(ctx: ServiceContext, store: BlobStore) -> bool:
    """Return True if the other nodes use this store, judging by the generation that is saved in it.

    Each node begins a generation at least every five minutes, by its own clock, and saves it in the
    store. So an old generation, or none, means another store. A saved generation that the database
    lacks counts as theirs here; `registry.gc.database_rollback` reports it.
    """
    for _ in range(_LOOKS):
        newest_at = await ctx.database.read(generations.newest_at)
        noted = await store.generation()
        if newest_at is None:
            return True  # nobody has used a store yet
        if noted is not None:
            began_at = await ctx.database.read(generations.began_at, noted)
            # A node whose clock was ahead may have begun a generation in the future.
            is_old = began_at is not None and began_at <= min(newest_at, ctx.clock()) - _OLD
            return not is_old or await _has_stopped(ctx, store, noted)
        await asyncio.sleep(_LOOK_SECONDS)  # another node may be saving the first generation
    return False


async def _has_stopped(ctx: ServiceContext, store: BlobStore, noted: str) -> bool:
    """Return True if a store has an old generation only because it cannot be written to now.

    Nodes still read from a full disk, so this node may join them. A wrong disk may be full or
    read-only too, but only the right one has the newest blob.
    """
    try:
        await store.save_generation(noted)
    except Unavailable as error:
        _log.warning("the blob store cannot be written to: %s", error)
    else:
        return False
    newest = await ctx.database.read(generations.newest_stored)
    try:
        if newest is not None:
            await store.check(*newest)
    except (ObjectUnknown, ObjectDamaged):
        return False
    return True


def _refusal(differences: Sequence[Difference], others: Sequence[str]) -> str:
    told = "; ".join(
        f"{each.name} is {each.here!r}, not {each.there!r}"
        f"{' (is its disk mounted?)' if each.name == _BUCKETS else ''}"
        for each in differences
    )
    return (
        f"this node differs from those that run ({', '.join(others)}): {told}. Give all nodes the"
        " same; to change it, stop all of them first (docs/how-to/fleet.md)"
    )
