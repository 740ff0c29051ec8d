"""List tags and referrers of cached repositories as their upstreams have them.

An upstream's answer is used for the rule's `tag_ttl_seconds`; after that, it is used as a stale one
if the upstream cannot be asked.

*Tags*: the upstream's tags, and those stored here. The upstream is asked even before the first
pull; that creates no repository.

*Referrers* (signatures, SBOMs, attestations): from the upstream's referrers API or, if the upstream
has none, from the tag named after the digest, under which older clients store the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, ConstraintViolated
from cloudcore.errors import Unavailable
from registry.errors import DigestInvalid, ManifestUnknown, NameUnknown
from registry.metadata.blobs.objects import canonical_digests
from registry.metadata.images.manifests import find_manifests
from registry.metadata.pull_through import lookups
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.metadata.pull_through.lookups import CachedReferrers, KeptTags
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.repositories.repository import Repository, find_repository, lock_repository
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.context import ServiceContext
from registry.services.pull_through.fetched_manifests import UpstreamRoute, route_to
from registry.services.pull_through.manifests import pull_manifest
from registry.services.pull_through.remote import as_error
from registry.services.repositories.names import NamePage
from registry.upstream.base import HiddenUpstream, NotUpstream, UpstreamBroken, UpstreamFailed

_LOOK_SECONDS: Final = 15
"""How long a client waits for the upstream if there is another answer."""
_ABSENT: Final = "tags/list"
"""The reference under which the absence of an upstream's list of tags is recorded. No tag can have
this name."""


class CachedTags(NamedTuple):
    """A page of the tags of a cached repository."""

    page: NamePage
    is_stale: bool
    """True if the upstream could not be asked."""
    checked_at: int | None
    """When the upstream sent its list, or None if it never did."""
    is_whole: bool
    """False if the upstream has more tags than are listed."""


class _KnownTags(NamedTuple):
    rule: CacheRule | None
    kept: KeptTags | None
    is_absent: bool
    """True if the upstream has recently answered that it has no list."""


async def list_cached_tags(
    ctx: ServiceContext, name: Name, after: str, limit: int, here: NamePage | NameUnknown
) -> CachedTags:
    """Return a page of tags after `after`; `here` is the same page of the tags stored here.

    Raise `here` if it is a `NameUnknown`, and the upstream does not list the repository either;
    `Unavailable` if the upstream gave no usable answer, and no answer is stored.
    """
    known = await ctx.database.read(_find_tags, name, ctx.clock())
    kept, is_stale = known.kept, False
    route = route_to(ctx, known.rule, name)
    if route is not None and not known.is_absent and (not kept or ctx.clock() >= kept.fresh_until):
        has_other = kept is not None or isinstance(here, NamePage)
        try:
            async with asyncio.timeout(_LOOK_SECONDS if has_other else None):
                kept = await ctx.tag_list_fetches.join(
                    name.handle,
                    route.remote.origin,
                    name,
                    lambda: _ask_tags(ctx, route, name, kept),
                )
        except (UpstreamFailed, HiddenUpstream, Unavailable, TimeoutError) as failure:
            if kept is None and isinstance(here, NameUnknown):
                if isinstance(failure, HiddenUpstream):
                    raise here from None
                if isinstance(failure, UpstreamFailed):
                    raise as_error(failure, ctx.clock()) from None
                raise
            is_stale = True
        except NotUpstream:
            kept = None
    if kept is None:
        if isinstance(here, NameUnknown):
            raise here
        return CachedTags(here, is_stale, None, is_whole=True)
    page = _merged(kept, after, limit, here)
    return CachedTags(page, is_stale, kept.checked_at, kept.is_whole)


def _find_tags(tx: Connection, name: Name, now: int) -> _KnownTags:
    rule = find_rule_for(tx, name.handle, name.repository)
    if rule is None:
        return _KnownTags(None, None, is_absent=False)
    return _KnownTags(
        rule,
        lookups.find_tags(tx, rule.id, name.repository),
        lookups.is_absent(tx, rule.id, name.repository, _ABSENT, now),
    )


async def _ask_tags(
    ctx: ServiceContext, route: UpstreamRoute, name: Name, kept: KeptTags | None
) -> KeptTags:
    """Fetch the upstream's list of tags and store it.

    Raise `NotUpstream` if the upstream has none; then the stored list is deleted, unless the
    upstream may only hide the repository.
    """
    known = await ctx.database.read(_find_tags, name, ctx.clock())
    if known.kept is not None and ctx.clock() < known.kept.fresh_until:
        return known.kept  # another request has fetched it since the caller looked
    try:
        told = await route.upstream.list_tags(route.remote)
    except NotUpstream as missing:
        if kept is None or not isinstance(missing, HiddenUpstream):
            with suppress(ConstraintViolated, Unavailable):
                await ctx.database.write(_note_absence, route.rule, name, ctx.clock())
        raise
    now = ctx.clock()
    names = "\n".join(sorted(told.names)).encode()
    found = KeptTags(names, told.is_whole, now, now + route.rule.tag_ttl_seconds * MICROSECONDS)
    with suppress(ConstraintViolated, Unavailable):  # such as a full disk; the list is returned
        await ctx.database.write(lookups.keep_tags, route.rule.id, name.repository, found)
    return found


def _note_absence(tx: Connection, rule: CacheRule, name: Name, now: int) -> None:
    lookups.remove_tags(tx, rule.id, name.repository)
    until = now + rule.negative_ttl_seconds * MICROSECONDS
    lookups.note_absence(tx, rule.id, name.repository, _ABSENT, until)


def _merged(kept: KeptTags, after: str, limit: int, here: NamePage | NameUnknown) -> NamePage:
    """Merge the upstream's tags and the page `here` into one page of tags after `after`."""
    of_both = set(kept.after(after, limit + 1))
    has_more = False
    if isinstance(here, NamePage):
        of_both.update(here.names)
        has_more = here.has_more
    names = sorted(of_both)
    return NamePage(names[:limit], has_more or len(names) > limit)


class UpstreamReferrer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The descriptor of a referrer; other fields that an upstream sends are left out."""

    media_type: str
    digest: str
    size: int
    artifact_type: str | None = None
    annotations: dict[str, str] | None = None


class _Index(msgspec.Struct, frozen=True):
    manifests: list[UpstreamReferrer] | None = []
    """None, which some registries send, is an empty list."""


class UpstreamReferrers(NamedTuple):
    """The referrers of a digest, as the upstream lists them."""

    listed: Sequence[UpstreamReferrer]
    stale_since: int | None
    """When the upstream sent this list, if it cannot be asked now; else None."""


class _KnownReferrers(NamedTuple):
    rule: CacheRule | None
    repository: Repository | None
    cached: CachedReferrers | None


_decoder = msgspec.json.Decoder(_Index)


async def list_upstream_referrers(
    ctx: ServiceContext, name: Name, subject: Digest
) -> UpstreamReferrers | None:
    """Return the referrers of a digest as its upstream lists them, or as it last listed them.

    If no list is stored, return None if no upstream is asked for this name, or if the upstream
    hides the repository; raise `Unavailable` if the upstream failed.
    """
    known = await ctx.database.read(_find_cached, name, subject)
    cached, now = known.cached, ctx.clock()
    if cached is not None and now < cached.fresh_until:
        return UpstreamReferrers(_read(cached.body), None)
    route = route_to(ctx, known.rule, name)
    if route is None:
        return UpstreamReferrers(_read(cached.body), None) if cached else None
    try:
        body = await ctx.referrer_fetches.join(
            name.handle,
            route.remote.origin,
            (name, subject),
            lambda: _ask_referrers(ctx, route, name, subject, known.repository),
        )
    except (UpstreamFailed, HiddenUpstream, Unavailable) as failure:
        if cached is not None:
            return UpstreamReferrers(_read(cached.body), cached.checked_at)
        if isinstance(failure, HiddenUpstream):
            return None
        raise (as_error(failure, now) if isinstance(failure, UpstreamFailed) else failure) from None
    return UpstreamReferrers(_read(body), None)


def _find_cached(tx: Connection, name: Name, subject: Digest) -> _KnownReferrers:
    repository = find_repository(tx, name.handle, name.repository)
    if repository is not None and not repository.is_cached:
        return _KnownReferrers(None, None, None)
    rule = find_rule_for(tx, name.handle, name.repository)
    cached = lookups.find_referrers(tx, repository.id, str(subject)) if repository else None
    return _KnownReferrers(rule, repository, cached)


async def _ask_referrers(
    ctx: ServiceContext,
    route: UpstreamRoute,
    name: Name,
    subject: Digest,
    repository: Repository | None,
) -> bytes:
    """Fetch the upstream's index of referrers; store it if the manifest is stored here."""
    try:
        told = await route.upstream.get_referrers(route.remote, subject)
    except HiddenUpstream:
        raise
    except NotUpstream:
        told = b"{}"
    if told is None:
        told = await _by_tag(ctx, name, subject)
    body = msgspec.json.encode(_Index(_checked(told)))
    if repository is not None:
        now = ctx.clock()
        until = now + route.rule.tag_ttl_seconds * MICROSECONDS
        kept = CachedReferrers(body, now, until)
        with suppress(Unavailable):  # such as a full disk; the answer is returned nevertheless
            await ctx.database.write(_keep, repository, str(subject), kept)
    return body


async def _by_tag(ctx: ServiceContext, name: Name, subject: Digest) -> bytes:
    """Fetch the index under the tag named after a digest; return an empty one if it is absent."""
    tag = str(subject).replace(":", "-")[:128]
    try:
        return (await pull_manifest(ctx, name, tag)).body
    except (ManifestUnknown, NameUnknown):
        return b"{}"


def _keep(tx: Connection, repository: Repository, subject: str, told: CachedReferrers) -> None:
    """Store the referrers of a manifest, but only if the manifest is stored here."""
    if lock_repository(tx, repository.id) is None:
        return
    digest = canonical_digests(tx, repository.account_id, [subject]).get(subject, subject)
    if find_manifests(tx, repository.id, [digest]):
        lookups.put_referrers(tx, repository.id, subject, told)


def _checked(told: bytes) -> list[UpstreamReferrer]:
    """Decode an upstream's index of referrers; raise `UpstreamBroken` if it is malformed."""
    try:
        listed = _decoder.decode(told).manifests or []
        for each in listed:
            Digest.parse(each.digest)
    except (msgspec.MsgspecError, DigestInvalid):
        raise UpstreamBroken("it sent no index of referrers") from None
    return listed


def _read(body: bytes) -> Sequence[UpstreamReferrer]:
    return _decoder.decode(body).manifests or []
