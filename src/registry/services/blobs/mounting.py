"""Mount blobs: link a blob of the same account into a repository without copying bytes.

Most mounts find nothing, so the search is a read transaction. A sealed blob needs a wrap under the
KMS key of the target repository. The wrap is made after the search, and the transaction that links
the blob checks that the blob still has the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from registry.blobstore.base import PLAIN
from registry.errors import BlobUnknown, KmsKeyDisabled, NameUnknown
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.objects import Link, LinkTarget
from registry.metadata.blobs.wraps import Wrap, find_wraps, put_wrap
from registry.metadata.encryption_bindings import effective_key
from registry.metadata.pull_through import cached_images
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.repositories import repository as repositories
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.access.decisions import Rights
from registry.services.blobs.deduplication import open_any, wrap_again
from registry.services.blobs.links import leave
from registry.services.blobs.reading import FoundBlob, check_blob
from registry.services.blobs.sealing import repository_and_key
from registry.services.context import ServiceContext
from registry.services.pull_through.references import complete_blob

_TRIES: Final = 3
"""Attempts to wrap a data key while other requests replace the bytes."""
_MOUNT_CANDIDATES: Final = 100
"""The maximum number of repositories searched when a mount names no source."""


_FindLink = Callable[[Connection, str, Name, str], Link | None]
"""Finds the link to mount from; takes an account id, the target repository and a sha256 digest."""


class _Rewrapped(NamedTuple):
    """A new wrap of the data key of stored bytes, made before the transaction."""

    stored_id: str
    kms_key_id: str
    wrapped: bytes


class _MountSource(NamedTuple):
    """A blob that may be mounted."""

    link: Link
    kms_key_id: str = ""
    """The KMS key of the target repository, if the blob is sealed."""
    wraps: Sequence[Wrap] = ()
    """The wraps of its data key."""


class _NotWrappedError(Exception):
    """The blob's data key must first be wrapped under the target's KMS key."""

    def __init__(self, source: _MountSource) -> None:
        super().__init__()
        self.source = source


async def mount_blob(
    ctx: ServiceContext, name: Name, digest: Digest, source: Name | None, rights: Rights
) -> Link | None:
    """Link a blob of the same account into a repository without copying bytes (end-11).

    Without `source`, search this repository, then others that the caller may pull from. Return None
    if there is nothing to mount, the blob is damaged, no KMS key opens it, or the caller may not
    pull it; the client must not learn which. There are several transactions: rights are evaluated
    outside of transactions, and the store is checked last.

    Raises:
        Unauthenticated: see `Rights.sources`.
        NameUnknown: see `repository_for_push`.
        KmsKeyDeleted, KmsKeyDisabled: the KMS key that the target writes under cannot be used.

    """
    may_pull = await rights.sources(name, source)
    await repository_and_key(ctx, name, rights)
    find_link = partial(_source_link, source=source, may_pull=may_pull)
    return await _mount_checked(ctx, name, digest, find_link)


async def link_held_blob(ctx: ServiceContext, name: Name, digest: Digest) -> Link | None:
    """Link a blob into a cached repository from another repository under the same rule.

    The caller must know that the upstream has the blob. Return None if no such repository has the
    blob, it is damaged, or no KMS key opens it.
    """
    return await _mount_checked(ctx, name, digest, _cached_link)


async def _mount_checked(
    ctx: ServiceContext, name: Name, digest: Digest, find_link: _FindLink
) -> Link | None:
    """Link a blob and check its bytes; return None if it cannot be linked or read."""
    link = await _mount_wrapped(ctx, name, digest, find_link)
    if link is None:
        return None
    try:
        await check_blob(ctx, name, FoundBlob(link, None))
    except (BlobUnknown, KmsKeyDisabled, NameUnknown):
        return None
    return link


async def _mount_wrapped(
    ctx: ServiceContext, name: Name, digest: Digest, find_link: _FindLink
) -> Link | None:
    found = await ctx.database.read(_find_source, name, digest, find_link)
    for _ in range(_TRIES):
        if found is None:
            return None
        made: _Rewrapped | None = None
        if found.link.encoding != PLAIN:
            made = await _wrap(ctx, found)
            if made is None:
                return None
        try:
            return await ctx.database.write(_mount, name, digest, find_link, made, ctx.clock())
        except _NotWrappedError as error:
            found = error.source
    return None


async def _wrap(ctx: ServiceContext, source: _MountSource) -> _Rewrapped | None:
    """Wrap the data key of a blob under the target's KMS key; None if a key cannot be used."""
    link, key_id = source.link, source.kms_key_id
    try:
        opened = await open_any(ctx, link.account_id, link.stored_id, key_id, source.wraps)
    except Unavailable:
        return None  # the client sends the bytes instead
    if opened is None:
        return None
    wrapped = await wrap_again(ctx, link.account_id, key_id, link.stored_id, opened)
    return None if wrapped is None else _Rewrapped(link.stored_id, key_id, wrapped)


def _find_source(
    tx: Connection, name: Name, digest: Digest, find_link: _FindLink
) -> _MountSource | None:
    target = repositories.find_repository(tx, name.handle, name.repository)
    canonical = blobs.canonical_digest(tx, name.handle, digest)
    if target is None or canonical is None:
        return None
    link = find_link(tx, target.account_id, name, canonical)
    if link is None or link.encoding == PLAIN:
        return link and _MountSource(link)
    return _to_wrap(tx, target.id, link)


def _to_wrap(tx: Connection, repository_id: str, link: Link) -> _MountSource:
    key = effective_key(tx, link.account_id, repository_id)
    return _MountSource(link, key.kms_key_id, find_wraps(tx, link.account_id, link.object_id))


def _mount(
    tx: Connection,
    name: Name,
    digest: Digest,
    find_link: _FindLink,
    made: _Rewrapped | None,
    now: int,
) -> Link | None:
    """Link a blob; return None if there is nothing to mount, or its keys cannot be used.

    Raise `_NotWrappedError` if the blob is sealed and `made` is not a wrap of its bytes under the
    target's KMS key.
    """
    target = repositories.find_repository(tx, name.handle, name.repository)
    canonical = blobs.canonical_digest(tx, name.handle, digest)
    if target is None or canonical is None:
        return None
    if target.is_cached and repositories.lock_repository(tx, target.id) is None:
        return None
    found = find_link(tx, target.account_id, name, canonical)
    if found is None or not blobs.undelete_object(tx, found.object_id, found.stored_id):
        return None
    kms_key_id = None
    if found.encoding != PLAIN:
        kms_key_id = _key_for(tx, target.id, found, made)
        if kms_key_id is None:
            return None
    to = target.id, target.account_id, canonical, found.object_id, found.size
    before = blobs.link_object(tx, *to, now, kms_key_id)
    if before is not None:
        leave(tx, target.account_id, before, LinkTarget(found.object_id, kms_key_id), now)
    if target.is_cached:
        names = list(dict.fromkeys((canonical, str(digest))))
        complete_blob(tx, target.id, names, found.size, now)
    return blobs.find_link(tx, name.handle, name.repository, canonical)


def _key_for(
    tx: Connection, repository_id: str, found: Link, made: _Rewrapped | None
) -> str | None:
    """Return the target's KMS key, after making sure that the locked object has a wrap under it.

    Return None if the key cannot be used.
    """
    key = effective_key(tx, found.account_id, repository_id)
    if made is None or (made.stored_id, made.kms_key_id) != (found.stored_id, key.kms_key_id):
        raise _NotWrappedError(_to_wrap(tx, repository_id, found))
    is_put = put_wrap(tx, found.account_id, found.object_id, key.kms_key_id, made.wrapped)
    return key.kms_key_id if is_put else None


def _source_link(
    tx: Connection,
    account_id: str,
    name: Name,
    digest: str,
    source: Name | None,
    may_pull: Callable[[Name], bool],
) -> Link | None:
    """Return the link to mount from: the one in `source`, or the first that may be pulled.

    The bytes of an inline blob are not read. Links whose KMS key cannot be used are skipped, even
    if the key of another repository opens the blob: disabling a key must also stop mounts from the
    repositories that use it.
    """
    if source is not None:
        if source.handle != name.handle or not (source == name or may_pull(source)):
            return None
        named = blobs.find_link_alone(tx, source.handle, source.repository, digest)
        return named if named is not None and _is_open(named) else None
    own = blobs.find_link_alone(tx, name.handle, name.repository, digest)
    if own is not None and _is_open(own):
        return own
    for repository, link in blobs.holders(tx, account_id, digest, _MOUNT_CANDIDATES):
        if _is_open(link) and may_pull(Name(name.handle, repository)):
            return link
    return None


def _cached_link(tx: Connection, account_id: str, name: Name, digest: str) -> Link | None:
    """Return a readable link for a cached repository: its own, or one under its rule, or None."""
    own = blobs.find_link_alone(tx, name.handle, name.repository, digest)
    if own is not None and _is_open(own):
        return own
    rule = find_rule_for(tx, name.handle, name.repository)
    if rule is None or rule.account_id != account_id:
        return None
    held = cached_images.links_of_rule(tx, rule, digest, _MOUNT_CANDIDATES)
    return next((link for link in held if _is_open(link)), None)


def _is_open(link: Link) -> bool:
    """Return True if a blob is plain, or is read through a KMS key that can be used."""
    if link.encoding == PLAIN:
        return True
    return link.wrapped_data_key is not None and link.key_state == "enabled"
