"""Find, open, check, mount and detach the blobs of a repository."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from cloudcore.db.base import Connection
from registry.blobstore.base import ObjectDamaged, ObjectUnknown, OpenObject
from registry.errors import BlobReferenced, BlobUnknown, NameUnknown, StoreUnavailable
from registry.metadata.blobs import damage
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.objects import Link
from registry.metadata.collector.collection import condemn, lock_objects
from registry.metadata.repositories import live as repositories
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.access import DELETE, Rights
from registry.services.audit import record_change
from registry.services.blobs.damage import find_damage, note_damage
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.repositories.locks import lock_named_repository
from registry.services.repositories.names import name_unknown, repository_for_push

T = TypeVar("T")

_LOOKS: Final = 3
"""Attempts to read a file that other requests heal meanwhile."""
_NEVER_VERIFIED: Final = 0
_MOUNT_CANDIDATES: Final = 100
"""Limit of the repositories searched when a mount names no source."""


async def stat_blob(ctx: ServiceContext, name: Name, digest: Digest, *, keep: bool = False) -> Link:
    """Return the link of a blob in a repository.

    With `keep`, a client relies on the blob (HEAD before a push): check its file; and if the link
    is unreferenced and was last touched long ago, touch it, and commit that before the answer. A
    referenced link is touched when its last manifest is deleted.

    Raises:
        BlobUnknown: the repository does not link the blob, even if the account has its bytes; or
            the bytes are damaged, and a push will replace them.
        NameUnknown: there is no such repository.

    """
    link = await ctx.database.read(_find, name, digest)
    if link.damage is not None and not await _is_back(ctx, link):
        raise _damaged(name, digest)
    if keep:
        await check_blob(ctx, name, link)
    if keep and not link.manifest_refs:
        now = ctx.clock()
        is_old = now - link.touched_at > min(ctx.limits.touch_after, ctx.delays.grace // 2)
        if is_old and not await ctx.database.write(
            blobs.touch_link, link.repository_id, link.digest, now
        ):
            raise _unknown(name, digest)
    return link


async def open_blob(ctx: ServiceContext, name: Name, link: Link) -> OpenObject:
    """Open a linked blob; the caller closes it.

    Mark the file as damaged if it is absent or has another size than the blob.

    Raises:
        BlobUnknown: the bytes are damaged, or the link was removed meanwhile.
        StoreUnavailable: the store failed.

    """
    return await _look(ctx, name, link, lambda link: ctx.reader.open(link.stored_id, link.size))


async def check_blob(ctx: ServiceContext, name: Name, link: Link) -> None:
    """Check that a linked blob's file exists with the blob's size; mark it as damaged if not.

    Raises:
        BlobUnknown, StoreUnavailable: as `open_blob`.

    """
    if not ctx.reader.check_cached(link.stored_id, link.stored_size):
        check = ctx.reader.check
        await _look(ctx, name, link, lambda link: check(link.stored_id, link.stored_size))


async def _look(
    ctx: ServiceContext, name: Name, link: Link, look: Callable[[Link], Awaitable[T]]
) -> T:
    """Return the result of `look`; mark the link's file if it is damaged."""
    for _ in range(_LOOKS):
        try:
            return await look(link)
        except ObjectUnknown:
            found = damage.ABSENT
        except ObjectDamaged:
            found = damage.SIZE
        if await note_damage(ctx, link, found):
            break
        # Another request has marked it, or a push has healed it, since the link was read.
        link = await stat_blob(ctx, name, Digest(link.digest))
    raise _damaged(name, link.digest)


async def look_again(ctx: ServiceContext, name: Name, link: Link) -> None:
    """Check a file that could not be sent completely; mark it if it is damaged."""
    with suppress(BlobUnknown, NameUnknown, StoreUnavailable):
        await check_blob(ctx, name, link)


async def _is_back(ctx: ServiceContext, link: Link) -> bool:
    """Remove the mark of a file that was absent or of another size, and is whole again.

    That happens when a disk is mounted late or a backup is restored. Return False if the file is
    still damaged. Only fsck removes a mark for a wrong hash or unreadable bytes.
    """
    if link.damage not in (damage.ABSENT, damage.SIZE):
        return False
    if await find_damage(ctx.reader, link.stored_id, link.stored_size) is not None:
        return False
    seen = link.account_id, link.stored_id, link.verified_at, link.damage
    await ctx.database.write(damage.confirm, *seen, _NEVER_VERIFIED)
    return True


async def mount_blob(
    ctx: ServiceContext,
    name: Name,
    digest: Digest,
    source: Name | None,
    rights: Rights,
) -> Link | None:
    """Link a blob of the same account into a repository without copying bytes (end-11).

    Without `source`, search this repository, then others that the caller may pull from.
    Return None if there is nothing to mount, or it is damaged, or the caller may not pull it: the
    caller must not learn which. It takes several transactions: rights are evaluated
    outside of any, and the store is asked last.

    Raises:
        Unauthenticated: see `Rights.sources`.
        NameUnknown: see `repository_for_push`.

    """
    may_pull = await rights.sources(name, source)
    await repository_for_push(ctx, name, rights)
    link = await ctx.database.write(_mount, name, digest, source, may_pull, ctx.clock())
    if link is None:
        return None
    try:
        await check_blob(ctx, name, link)
    except BlobUnknown:
        return None
    return link


def detach_blob(tx: Connection, name: Name, digest: Digest, change: Change) -> None:
    """Unlink a blob from a repository; the collector deletes its bytes (end-10).

    Raises:
        BlobUnknown: the repository does not link it.
        BlobReferenced: a manifest of the repository references it.
        NameUnknown: there is no such repository.

    """
    repository = lock_named_repository(tx, name)
    link = _find(tx, name, digest)  # under the lock, or another who deletes it may be before us
    lock_objects(tx, link.account_id, [link.object_id])
    if not blobs.unlink(tx, link.repository_id, link.digest):
        raise BlobReferenced(
            f"a manifest in {name} references {digest}; delete the manifest first",
            digest=str(digest),
        )
    condemn(tx, link.account_id, [link.object_id], change.now)
    record_change(tx, change, DELETE, repository, blob=str(digest))


def _find(tx: Connection, name: Name, digest: Digest) -> Link:
    canonical = blobs.canonical_digest(tx, name.handle, digest)
    link = blobs.find_link(tx, name.handle, name.repository, canonical) if canonical else None
    if link is not None:
        return link
    if repositories.find_repository(tx, name.handle, name.repository) is None:
        raise name_unknown(name)
    raise _unknown(name, digest)


def _mount(
    tx: Connection,
    name: Name,
    digest: Digest,
    source: Name | None,
    may_pull: Callable[[Name], bool],
    now: int,
) -> Link | None:
    target = repositories.find_repository(tx, name.handle, name.repository)
    canonical = blobs.canonical_digest(tx, name.handle, digest)
    if target is None or canonical is None:
        return None
    found = _source_link(tx, target.account_id, name, canonical, source, may_pull)
    if found is None or not blobs.undelete_object(tx, found.object_id):
        return None
    blobs.link_object(tx, target.id, target.account_id, canonical, found.object_id, found.size, now)
    return found._replace(repository_id=target.id, touched_at=now)


def _source_link(
    tx: Connection,
    account_id: str,
    name: Name,
    digest: str,
    source: Name | None,
    may_pull: Callable[[Name], bool],
) -> Link | None:
    """Return the link to mount from: the one in `source`, or the first that may be pulled."""
    if source is not None:
        if source.handle != name.handle or not (source == name or may_pull(source)):
            return None
        return blobs.find_link(tx, source.handle, source.repository, digest)
    own = blobs.find_link(tx, name.handle, name.repository, digest)
    if own is not None:
        return own
    for repository, link in blobs.holders(tx, account_id, digest, _MOUNT_CANDIDATES):
        if may_pull(Name(name.handle, repository)):
            return link
    return None


def _unknown(name: Name, digest: str) -> BlobUnknown:
    return BlobUnknown(f"{name} has no blob {digest}", digest=str(digest))


def _damaged(name: Name, digest: str) -> BlobUnknown:
    return BlobUnknown(
        f"the bytes of blob {digest} in {name} are damaged; push them again", digest=str(digest)
    )
