"""List the referrers of cached manifests as the upstream has them: signatures, SBOMs, attestations.

By the upstream's referrers API; or, where it has none, by the tag made of the digest, under which
older clients keep the list. The answer is told again for the rule's `tag_ttl_seconds`, and when it
is stale, if the upstream cannot be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from registry.errors import DigestInvalid, ManifestUnknown, NameUnknown
from registry.metadata.blobs.objects import canonical_digests
from registry.metadata.images.manifests import find_manifests
from registry.metadata.pull_through import lookups as rows
from registry.metadata.pull_through.lookups import CachedReferrers
from registry.metadata.pull_through.rules import CacheRule, find_rule_for
from registry.metadata.repositories.live import Repository, find_repository, lock_repository
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.context import ServiceContext
from registry.services.pull_through.fetched_manifests import Way, way_to
from registry.services.pull_through.manifests import pull_manifest
from registry.services.pull_through.remote import as_error
from registry.upstream.base import HiddenUpstream, NotUpstream, UpstreamBroken, UpstreamFailed


class UpstreamReferrer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The descriptor of a referrer, without the other members that an upstream sends."""

    media_type: str
    digest: str
    size: int
    artifact_type: str | None = None
    annotations: dict[str, str] | None = None


class _Index(msgspec.Struct, frozen=True):
    manifests: list[UpstreamReferrer] | None = []
    """None, which some registries send, is an empty list."""


class UpstreamReferrers(NamedTuple):
    """The referrers of a digest at the upstream."""

    listed: Sequence[UpstreamReferrer]
    stale_since: int | None
    """When the upstream sent them, if it cannot be asked now; else None."""


class _Known(NamedTuple):
    rule: CacheRule | None
    repository: Repository | None
    cached: CachedReferrers | None


_decoder = msgspec.json.Decoder(_Index)


async def list_upstream_referrers(
    ctx: ServiceContext, name: Name, subject: Digest
) -> UpstreamReferrers | None:
    """Return the referrers of a digest in a cached repository, or None if nobody told them.

    Raises:
        Unavailable: the upstream gave no usable answer, and there is none from before.

    """
    known = await ctx.database.read(_find, name, subject)
    cached, now = known.cached, ctx.clock()
    if cached is not None and now < cached.fresh_until:
        return UpstreamReferrers(_read(cached.body), None)
    way = way_to(ctx, known.rule, name)
    if way is None:
        return UpstreamReferrers(_read(cached.body), None) if cached else None
    try:
        body = await ctx.referrer_fetches.join(
            name.handle,
            way.remote.origin,
            (name, subject),
            lambda: _ask(ctx, way, name, subject, known.repository),
        )
    except (UpstreamFailed, HiddenUpstream, Unavailable) as failure:
        if cached is not None:
            return UpstreamReferrers(_read(cached.body), cached.checked_at)
        if isinstance(failure, HiddenUpstream):
            return None
        raise (as_error(failure, now) if isinstance(failure, UpstreamFailed) else failure) from None
    return UpstreamReferrers(_read(body), None)


def _find(tx: Connection, name: Name, subject: Digest) -> _Known:
    repository = find_repository(tx, name.handle, name.repository)
    if repository is not None and not repository.is_cached:
        return _Known(None, None, None)
    rule = find_rule_for(tx, name.handle, name.repository)
    cached = rows.find_referrers(tx, repository.id, str(subject)) if repository else None
    return _Known(rule, repository, cached)


async def _ask(
    ctx: ServiceContext, way: Way, name: Name, subject: Digest, repository: Repository | None
) -> bytes:
    """Fetch the upstream's index of referrers; store it if the manifest is stored here."""
    try:
        told = await way.upstream.get_referrers(way.remote, subject)
    except HiddenUpstream:
        raise
    except NotUpstream:
        told = b"{}"
    if told is None:
        told = await _by_tag(ctx, name, subject)
    body = msgspec.json.encode(_Index(_checked(told)))
    if repository is not None:
        now = ctx.clock()
        until = now + way.rule.tag_ttl_seconds * MICROSECONDS
        kept = CachedReferrers(body, now, until)
        with suppress(Unavailable):  # such as a full disk; the answer is told all the same
            await ctx.database.write(_keep, repository, str(subject), kept)
    return body


async def _by_tag(ctx: ServiceContext, name: Name, subject: Digest) -> bytes:
    """Return the index under the tag of a digest, or an empty one."""
    tag = str(subject).replace(":", "-")[:128]
    try:
        return (await pull_manifest(ctx, name, tag)).body
    except (ManifestUnknown, NameUnknown):
        return b"{}"


def _keep(tx: Connection, repository: Repository, subject: str, told: CachedReferrers) -> None:
    """Store the referrers of a manifest that is stored here; requests for others add no rows."""
    if lock_repository(tx, repository.id) is None:
        return
    digest = canonical_digests(tx, repository.account_id, [subject]).get(subject, subject)
    if find_manifests(tx, repository.id, [digest]):
        rows.put_referrers(tx, repository.id, subject, told)


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
