"""Fetch manifests that clients request and that a cached repository lacks.

One process fetches a reference; other callers and processes wait for the result. References that
the upstream lacks are recorded for a while, for all processes. The first pull of a name under a
rule creates the name's repository.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, ConstraintViolated
from cloudcore.errors import Unavailable
from registry.errors import DigestMismatch, ManifestInvalid, ManifestUnknown, NameUnknown
from registry.metadata.images.manifests import BodyComparison, StoredManifest
from registry.metadata.pull_through import lookups
from registry.metadata.pull_through.cache_rule import CACHE_RULE, CacheRule
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.repository import (
    PULL_THROUGH_CACHE,
    Repository,
    find_repository,
)
from registry.oci.digest import Digest
from registry.oci.manifest import ReadManifest
from registry.oci.reference import Name
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.events import REPOSITORY_CREATED, RegistryEvent, publish
from registry.services.images import manifests
from registry.services.images.manifests import ManifestPut, read_pushed
from registry.services.pull_through.remote import as_error, remote_of
from registry.services.pull_through.upstream_states import record_failure
from registry.services.repositories.names import name_unknown
from registry.upstream.base import (
    FetchedManifest,
    NotUpstream,
    Remote,
    UpstreamBroken,
    UpstreamFailed,
)
from registry.upstream.client import RegistryClient


def change_by_rule(ctx: ServiceContext, rule: CacheRule) -> Change:
    """Return a change by the cache; its principal is the rule, not the client."""
    return ctx.change_by(CACHE_RULE.crn_of(rule))


async def cached_repository(ctx: ServiceContext, name: Name) -> Repository:
    """Return the cached repository of a name; create it if missing and a rule covers the name.

    The right to pull suffices, since the rule permits the creation.

    Raise `NameUnknown` if no rule covers the name, or its repository is not cached.
    """
    found = await ctx.database.read(repositories.find_repository, name.handle, name.repository)
    if found is None:
        found = await ctx.database.write(_create, ctx, name, ctx.new_id())
    if not found.is_cached:
        raise name_unknown(name)
    return found


def _create(tx: Connection, ctx: ServiceContext, name: Name, repository_id: str) -> Repository:
    account = repositories.find_account(tx, name.handle)
    rule = find_rule_for(tx, name.handle, name.repository)
    if account is None or rule is None:
        raise name_unknown(name)
    change = change_by_rule(ctx, rule)
    found = repositories.find_or_add_repository(
        tx, repository_id, account, name.repository, change.now, source=PULL_THROUGH_CACHE
    )
    if found.id == repository_id:
        publish(tx, change, found, [RegistryEvent(REPOSITORY_CREATED)])
    return found


CLAIM_SECONDS: Final = 15
"""Seconds after which another process may fetch a manifest, if the fetching process has died."""
RENEW_SECONDS: Final = 5
_WAIT_SECONDS: Final = 0.05


class UpstreamRoute(NamedTuple):
    """The rule, client and upstream repository through which a name's content is fetched."""

    rule: CacheRule
    upstream: RegistryClient
    remote: Remote


def route_to(ctx: ServiceContext, rule: CacheRule | None, name: Name) -> UpstreamRoute | None:
    """Return the route through which a name's content is fetched.

    Return None if `rule` is None or disabled, or if this process asks no upstreams.
    """
    if rule is None or not rule.enabled or ctx.upstream is None:
        return None
    return UpstreamRoute(rule, ctx.upstream, remote_of(rule, name, ctx.cache_credential))


async def fetch_missing(
    ctx: ServiceContext, name: Name, reference: str | Digest, missing: ManifestUnknown | NameUnknown
) -> StoredManifest:
    """Fetch a manifest from its upstream, store it and return it; it is not stored here yet.

    Raise `missing` (`ManifestUnknown` or `NameUnknown`) if no upstream is asked for this name, or
    the upstream does not have the manifest; `Unavailable` if the upstream gave no usable answer.
    """
    if ctx.upstream is None:
        raise missing
    rule, is_absent = await ctx.database.read(_find_rule, name, reference, ctx.clock())
    route = route_to(ctx, rule, name)
    if route is None:
        raise missing
    if is_absent:
        raise not_upstream(name, reference)
    return await ctx.manifest_fetches.join(
        name.handle,
        route.remote.origin,
        (name, reference),
        lambda: _fetch(ctx, route, name, reference),
    )


def not_upstream(name: Name, reference: str) -> ManifestUnknown:
    """Return the error for a manifest that the upstream lacks."""
    return ManifestUnknown(
        f"the upstream of {name} has no manifest {reference}", reference=str(reference)
    )


async def store_fetched(
    ctx: ServiceContext,
    route: UpstreamRoute,
    name: Name,
    reference: str | Digest,
    fetched: FetchedManifest,
) -> None:
    """Store a fetched manifest; if `reference` is a tag, point the tag to the manifest.

    Raises:
        UpstreamBroken: the bytes are not a manifest, or have another digest.
        TagImmutable: the tag may not move.
        NameUnknown: the repository, or its rule, was deleted meanwhile.

    """
    expected = reference if isinstance(reference, Digest) else None
    tags = () if expected else (str(reference),)
    put = ManifestPut(fetched.body, fetched.media_type, expected, tags, is_fetched=True)
    try:
        read = await read_pushed(name, put)
        repository = await cached_repository(ctx, name)
        kept = await ctx.database.write(
            _store, ctx, route.rule, name, repository.id, put, read, ctx.new_id(), fetched.etag
        )
    except (DigestMismatch, ManifestInvalid) as error:
        why = f": {error.message}" if isinstance(error, ManifestInvalid) else ""
        words = "no manifest that can be stored" if why else "other bytes than those of the digest"
        noted = UpstreamBroken(f"it sent {words}")  # without what the upstream may have written
        with suppress(Unavailable):  # the client gets the error nevertheless
            await ctx.database.write_relaxed(record_failure, route.rule.id, noted, ctx.clock())
        raise UpstreamBroken(f"{noted}{why}") from None
    ctx.pulls.cache.fetched(route.rule.id, len(fetched.body), is_image=True)
    if kept is BodyComparison.HEALED:
        ctx.manifest_damage.note_healed(name, read.digest)


def _find_rule(
    tx: Connection, name: Name, reference: str, now: int
) -> tuple[CacheRule | None, bool]:
    """Return the rule for a name, and True if the upstream is recorded as lacking the reference."""
    rule = find_rule_for(tx, name.handle, name.repository)
    if rule is None:
        return None, False
    repository = find_repository(tx, name.handle, name.repository)
    if repository is not None and not repository.is_cached:
        return None, False
    return rule, lookups.is_absent(tx, rule.id, name.repository, str(reference), now)


async def _fetch(
    ctx: ServiceContext, route: UpstreamRoute, name: Name, reference: str | Digest
) -> StoredManifest:
    """Fetch a manifest, unless another process is doing so or has just done so."""
    rule_id, place = route.rule.id, (name.repository, str(reference))
    while True:
        now = ctx.clock()
        until = now + CLAIM_SECONDS * MICROSECONDS
        try:
            is_mine = await ctx.database.write(lookups.begin_fetch, rule_id, *place, now, until)
        except ConstraintViolated:  # the rule was deleted meanwhile: nothing is fetched any more
            return await manifests.get_whole_manifest(ctx, name, reference)
        found = await _look(ctx, name, reference)
        if found is not None:
            if is_mine:
                await ctx.database.write(lookups.end_fetch, rule_id, *place)
            return found
        if is_mine:
            break
        if await ctx.database.read(lookups.is_absent, rule_id, *place, now):
            raise not_upstream(name, reference)
        await asyncio.sleep(_WAIT_SECONDS)
    try:
        async with _renewed(ctx, rule_id, place):
            fetched = await route.upstream.get_manifest(route.remote, reference)
            await store_fetched(ctx, route, name, reference, fetched)
    except NotUpstream:
        until = ctx.clock() + route.rule.negative_ttl_seconds * MICROSECONDS
        with suppress(ConstraintViolated):  # the rule was deleted meanwhile
            await ctx.database.write(lookups.note_absence, rule_id, *place, until)
        raise not_upstream(name, reference) from None
    except BaseException as error:
        await ctx.database.write(lookups.end_fetch, rule_id, *place)
        if isinstance(error, UpstreamFailed):
            raise as_error(error, ctx.clock()) from None
        raise
    return await manifests.get_whole_manifest(ctx, name, reference)


@asynccontextmanager
async def _renewed(
    ctx: ServiceContext, rule_id: str, place: tuple[str, str]
) -> AsyncIterator[None]:
    """Renew the claim to fetch a reference every 5 s in a with block."""
    renewing = asyncio.create_task(_renew(ctx, rule_id, place))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def _renew(ctx: ServiceContext, rule_id: str, place: tuple[str, str]) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        until = ctx.clock() + CLAIM_SECONDS * MICROSECONDS
        with suppress(Unavailable):
            await ctx.database.write(lookups.renew_fetch, rule_id, *place, until)


async def _look(ctx: ServiceContext, name: Name, reference: str | Digest) -> StoredManifest | None:
    try:
        return await manifests.get_whole_manifest(ctx, name, reference)
    except (ManifestUnknown, NameUnknown):
        return None


def _store(
    tx: Connection,
    ctx: ServiceContext,
    rule: CacheRule,
    name: Name,
    repository_id: str,
    put: ManifestPut,
    read: ReadManifest,
    manifest_id: str,
    etag: str | None,
) -> BodyComparison:
    change = change_by_rule(ctx, rule)
    _, kept = manifests.put_manifest(tx, name, repository_id, put, read, manifest_id, change)
    # Once the rule is deleted, clients may push there: a late fetch must not move their tags.
    if find_rule_for(tx, name.handle, name.repository) is None:
        raise name_unknown(name)
    reference = put.tags[0] if put.tags else str(put.expected)
    for tag in put.tags:
        until = change.now + rule.tag_ttl_seconds * MICROSECONDS
        lookups.renew(tx, repository_id, tag, change.now, until, etag)
    lookups.end_fetch(tx, rule.id, name.repository, reference)
    return kept
