"""Get blobs that a cached repository lacks from the repository's upstream.

A blob that came from an upstream, for any repository under a rule, is linked into other
repositories under the same rule if their manifests list it, or if the upstream confirms that it has
the blob for them. Every other blob is fetched, even if the account has the bytes. So neither a
known digest nor an upstream's answer makes pushed blobs, or blobs of other upstreams, visible in a
cached repository.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from registry.blobstore.base import OpenObject
from registry.errors import BlobUnknown, NameUnknown
from registry.metadata.blobs import objects
from registry.metadata.pull_through import fills
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.metadata.pull_through.cached_images import links_of_rule
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.repositories import repository as repositories
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.blobs import reading
from registry.services.blobs.mounting import link_held_blob
from registry.services.blobs.reading import FoundBlob
from registry.services.context import ServiceContext
from registry.services.pull_through.feed import FeedReader
from registry.services.pull_through.fetched_manifests import cached_repository
from registry.services.pull_through.fill_or_follow import run_fill
from registry.services.pull_through.fills import FillSource, fill_key
from registry.services.pull_through.references import size_in_manifests
from registry.services.pull_through.remote import as_error, remote_of
from registry.upstream.base import NotUpstream, Remote, UpstreamFailed

_ROUNDS: Final = 3
"""Attempts to get a blob that other requests link, fetch or delete meanwhile."""


class FedBlob(NamedTuple):
    """A blob that is still being fetched; the caller closes `blob`."""

    blob: OpenObject
    size: int
    repository_id: str


class _Place(NamedTuple):
    """A missing blob: its rule, its repository and its listed size."""

    rule: CacheRule
    repository_id: str | None
    is_held: bool
    """True if another repository of the rule has the blob, or is about to get it."""
    size: int | None
    """The size that a manifest of the repository lists; None if none lists the digest."""


async def get_missing_blob(
    ctx: ServiceContext, name: Name, digest: Digest, missing: BlobUnknown | NameUnknown
) -> FoundBlob | FedBlob:
    """Return a blob that a repository lacks, as soon as its first bytes arrive.

    Raises:
        BlobUnknown, NameUnknown: no upstream is asked (`missing` is raised), or the upstream lacks
            the blob.
        Unavailable: the upstream gave no usable answer, so it is unknown whether it has the blob.
        KmsKeyDeleted, KmsKeyDisabled: the KMS key that the repository writes under cannot be used.
        StoreUnavailable: the store failed.

    """
    for _ in range(_ROUNDS):
        place = await ctx.database.read(_find_place, name, digest)
        if place is None or ctx.upstream is None:
            raise missing
        remote = remote_of(place.rule, name, ctx.cache_credential)
        is_known = place.size is not None
        if place.repository_id is None or (place.is_held and not is_known):
            await _ask_size(ctx, name, digest, remote)
            is_known = True
        if place.repository_id is None:
            await cached_repository(ctx, name)
            continue
        if place.is_held and await link_held_blob(ctx, name, digest) is not None:
            return await reading.stat_blob(ctx, name, digest)
        of, account_id = place.repository_id, place.rule.account_id
        source = FillSource(name, of, account_id, digest, remote, place.size, is_known)
        feed = ctx.fills.join(source, partial(run_fill, ctx, source))
        reader = FeedReader(feed, ctx.reader, partial(_open_stored, ctx, name, digest))
        try:
            await feed.opened()
        except BaseException:
            await reader.aclose()
            raise
        if feed.size is not None:
            return FedBlob(reader, feed.size, place.repository_id)
        await reader.aclose()
        try:
            return await reading.stat_blob(ctx, name, digest)
        except BlobUnknown:
            continue  # it is in another repository of the rule
    raise Unavailable("the blob changes while it is being read; try again", retry_after=1)


async def size_of_missing_blob(
    ctx: ServiceContext, name: Name, digest: Digest, missing: BlobUnknown | NameUnknown
) -> int:
    """Return the size of a blob that a repository lacks, without fetching it.

    Raise the errors of `get_missing_blob`.
    """
    place = await ctx.database.read(_find_place, name, digest)
    if place is None or ctx.upstream is None:
        raise missing
    remote = remote_of(place.rule, name, ctx.cache_credential)
    size = await _ask_size(ctx, name, digest, remote)
    size = place.size if size is None else size
    if size is None:
        raise Unavailable("the upstream registry does not tell the size of the blob")
    return size


async def _ask_size(ctx: ServiceContext, name: Name, digest: Digest, remote: Remote) -> int | None:
    """Ask the upstream for the size of a blob; return None if the upstream does not state it."""
    assert ctx.upstream is not None
    try:
        return await ctx.upstream.head_blob(remote, digest)
    except NotUpstream:
        raise BlobUnknown(
            f"the upstream of {name} has no blob {digest}", digest=str(digest)
        ) from None
    except UpstreamFailed as failure:
        raise as_error(failure, ctx.clock()) from failure


async def _open_stored(ctx: ServiceContext, name: Name, digest: Digest) -> OpenObject:
    try:
        found = await reading.stat_blob(ctx, name, digest)
    except BlobUnknown:  # it was fetched for another repository
        if await link_held_blob(ctx, name, digest) is None:
            raise
        found = await reading.stat_blob(ctx, name, digest)
    return await reading.open_blob(ctx, name, found)


def _find_place(tx: Connection, name: Name, digest: Digest) -> _Place | None:
    """Return the rule, repository and size of a missing blob.

    None if no enabled rule covers the name, or its repository is not cached.
    """
    rule = find_rule_for(tx, name.handle, name.repository)
    if rule is None or not rule.enabled:
        return None
    repository = repositories.find_repository(tx, name.handle, name.repository)
    if repository is not None and not repository.is_cached:
        return None
    repository_id = None if repository is None else repository.id
    canonical = objects.canonical_digest(tx, name.handle, digest)
    is_held = bool(canonical and links_of_rule(tx, rule, canonical, 1))
    if not is_held:
        key = fill_key(rule.id, rule.upstream_url, digest)
        fill = fills.find_fill(tx, rule.account_id, key)
        is_held = fill is not None and fill.upload.repository_id != repository_id
    size = None if repository is None else size_in_manifests(tx, repository.id, digest)
    return _Place(rule, repository_id, is_held, size)
