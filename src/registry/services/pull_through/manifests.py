"""Pull manifests through the cache, and revalidate tags when they are no longer fresh.

A stored digest is never requested again. A tag is fresh for the rule's `tag_ttl_seconds`; then one
caller asks the upstream if the tag has moved, and all others get the stored manifest meanwhile. If
the upstream cannot be asked, the stored manifest is marked as stale.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, ConstraintViolated
from cloudcore.errors import QuotaExceeded, Unavailable
from registry.errors import ManifestUnknown, NameUnknown, TagDeleteForbidden, TagImmutable
from registry.metadata.images.manifests import StoredManifest
from registry.metadata.pull_through import lookups
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.metadata.pull_through.lookups import LastAnswer
from registry.metadata.pull_through.rules import find_rule_for
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.context import ServiceContext
from registry.services.events import publish
from registry.services.images import manifests
from registry.services.pull_through import fetched_manifests
from registry.services.repositories.names import lock_named_repository
from registry.services.tags.pointers import drop_tag
from registry.upstream.base import HiddenUpstream, NotUpstream, UpstreamFailed, UpstreamLimited

_LOOK_SECONDS: Final = 15
"""How long a client waits for the upstream if there is an old answer."""
_CLAIM: Final = 30 * MICROSECONDS
"""How long other callers get the old answer while one asks the upstream, in microseconds."""
_RETRY: Final = 30 * MICROSECONDS
"""Microseconds after which an upstream that could not be asked is asked again."""
_MOST_RETRY: Final = 3600 * MICROSECONDS

_log = logging.getLogger(__name__)


async def pull_manifest(ctx: ServiceContext, name: Name, reference: str | Digest) -> StoredManifest:
    """Return a manifest by tag or digest, as stored here or as fetched from the upstream.

    Raise `ManifestUnknown` or `NameUnknown` if neither the repository nor an upstream has the
    manifest, `Unavailable` if it is not cached, and the upstream gave no usable answer.
    """
    try:
        found = await manifests.get_whole_manifest(ctx, name, reference)
    except (ManifestUnknown, NameUnknown) as missing:
        return await fetched_manifests.fetch_missing(ctx, name, reference, missing)
    if found.fresh_until is None or ctx.upstream is None or ctx.clock() < found.fresh_until:
        return found
    try:
        return await _revalidate(ctx, name, str(reference), found)
    except Unavailable as failure:  # no slot, or a fault here, such as a full disk
        _log.warning("tag %s of %s is not looked at: %s", reference, name, failure.message)
        return found


async def _revalidate(
    ctx: ServiceContext, name: Name, tag: str, found: StoredManifest
) -> StoredManifest:
    rule = await ctx.database.read(find_rule_for, name.handle, name.repository)
    route = fetched_manifests.route_to(ctx, rule, name)
    if route is None:
        return found  # only cached manifests are served
    assert found.fresh_until is not None
    is_mine = await ctx.database.write(
        lookups.claim_check, found.repository_id, tag, found.fresh_until, ctx.clock() + _CLAIM
    )
    if not is_mine:
        return found
    return await ctx.manifest_fetches.join(
        name.handle,
        route.remote.origin,
        ("look", name, tag),
        lambda: _look(ctx, route, name, tag, found),
    )


async def _look(
    ctx: ServiceContext,
    route: fetched_manifests.UpstreamRoute,
    name: Name,
    tag: str,
    found: StoredManifest,
) -> StoredManifest:
    last = await ctx.database.read(lookups.last_answer, found.repository_id, tag)
    try:
        await _ask(ctx, route, name, tag, found, last)
    except (HiddenUpstream, QuotaExceeded):  # perhaps hidden from this rule; or there is no room
        return await _serve_stale(ctx, found, tag, ctx.clock() + _RETRY)
    except NotUpstream:
        try:
            is_gone = await ctx.database.write(_forget_tag, ctx, route.rule, name, tag)
        except ConstraintViolated:  # the rule was deleted meanwhile: the cached manifest is served
            return found
        if is_gone:
            raise fetched_manifests.not_upstream(name, tag) from None
        await _renew(ctx, route.rule, tag, found, None)
    except (UpstreamFailed, TimeoutError) as failure:
        now = ctx.clock()
        until = now + _RETRY
        if isinstance(failure, UpstreamLimited):
            until = min(max(until, failure.retry_at), now + _MOST_RETRY)
        return await _serve_stale(ctx, found, tag, until)
    return await manifests.get_whole_manifest(ctx, name, tag)


async def _serve_stale(
    ctx: ServiceContext, found: StoredManifest, tag: str, until: int
) -> StoredManifest:
    """Return the stored manifest, marked as stale; the upstream is asked again after `until`."""
    since = await ctx.database.write(lookups.mark_stale, found.repository_id, tag, until)
    return found._replace(stale_since=since)


async def _ask(
    ctx: ServiceContext,
    route: fetched_manifests.UpstreamRoute,
    name: Name,
    tag: str,
    found: StoredManifest,
    last: LastAnswer | None,
) -> None:
    """Ask the upstream if a tag has moved; then renew or move the tag."""
    etag = last.etag if last else None
    async with asyncio.timeout(_LOOK_SECONDS):
        head = await route.upstream.head_manifest(route.remote, tag, etag)
    if head is None:
        await _renew(ctx, route.rule, tag, found, etag)
    elif head.digest is not None and head.digest in (found.digest, found.pushed_digest):
        await _renew(ctx, route.rule, tag, found, head.etag)
    else:
        async with asyncio.timeout(_LOOK_SECONDS):
            fetched = await route.upstream.get_manifest(route.remote, tag)
        try:
            await fetched_manifests.store_fetched(ctx, route, name, tag, fetched)
        except TagImmutable:  # in an immutable repository, the first manifest stays
            await _renew(ctx, route.rule, tag, found, None)
        except NameUnknown:  # the rule is gone: the cached manifest is served
            pass


async def _renew(
    ctx: ServiceContext, rule: CacheRule, tag: str, found: StoredManifest, etag: str | None
) -> None:
    now = ctx.clock()
    until = now + rule.tag_ttl_seconds * MICROSECONDS
    await ctx.database.write(lookups.renew, found.repository_id, tag, now, until, etag)


def _forget_tag(tx: Connection, ctx: ServiceContext, rule: CacheRule, name: Name, tag: str) -> bool:
    """Delete a tag that the upstream no longer has; its image stays and can be found by digest.

    Return False if the tag must stay: it is immutable, or no rule covers its repository any more.
    """
    change = fetched_manifests.change_by_rule(ctx, rule)
    try:
        repository = lock_named_repository(tx, name)
        if find_rule_for(tx, name.handle, name.repository) is None:
            return False
        publish(tx, change, repository, [drop_tag(tx, repository, tag, None, change)])
    except TagDeleteForbidden:
        return False
    except (ManifestUnknown, NameUnknown):
        pass  # it was deleted meanwhile
    until = change.now + rule.negative_ttl_seconds * MICROSECONDS
    lookups.note_absence(tx, rule.id, name.repository, tag, until)
    return True
