"""Blobs as a repository sees them: found, opened, mounted from elsewhere, detached."""

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
from registry.services.access import Rights
from registry.services.blobs.damage import find_damage, note_damage
from registry.services.context import ServiceContext
from registry.services.repositories.locks import lock_named_repository
from registry.services.repositories.names import name_unknown, repository_for_push

T = TypeVar("T")

_LOOKS: Final = 3
"""How often to try again when another request heals the file meanwhile."""
_NEVER_VERIFIED: Final = 0
_MOUNT_CANDIDATES: Final = 100
"""How many repositories of the account are looked at for a mount that names no source."""


async def stat_blob(ctx: ServiceContext, name: Name, digest: Digest, *, keep: bool = False) -> Link:
    """Return the link of a blob in a repository.

    With `keep`, a client will rely on the blob being there (HEAD before a push): its file is
    checked; an unreferenced link that was not touched for long is touched, and that is committed
    before the answer. One that is referenced needs no touch: it is given one when
    its last manifest goes.

    Raises:
        BlobUnknown: the repository does not link it, even if the account holds the bytes; or they
            are damaged, and a push will replace them.
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

    A file that is absent or has not the blob's size is marked as damaged.

    Raises:
        BlobUnknown: the bytes are damaged, or the blob has gone meanwhile.
        StoreUnavailable: the store failed.

    """
    return await _look(ctx, name, link, lambda link: ctx.reader.open(link.object_id, link.size))


async def check_blob(ctx: ServiceContext, name: Name, link: Link) -> None:
    """Check that a linked blob's file is there with the blob's size; mark it if it is damaged.

    Raises:
        BlobUnknown, StoreUnavailable: as `open_blob`.

    """
    if not ctx.reader.check_cached(link.object_id, link.size):
        await _look(ctx, name, link, lambda link: ctx.reader.check(link.object_id, link.size))


async def _look(
    ctx: ServiceContext, name: Name, link: Link, look: Callable[[Link], Awaitable[T]]
) -> T:
    """Return what `look` finds of a link's file, or mark the file as damaged."""
    for _ in range(_LOOKS):
        try:
            return await look(link)
        except ObjectUnknown:
            found = damage.ABSENT
        except ObjectDamaged:
            found = damage.SIZE
        if await note_damage(ctx, link, found):
            break
        # Another found it before us, or a push has healed it since the link was read.
        link = await stat_blob(ctx, name, Digest(link.digest))
    raise _damaged(name, link.digest)


async def look_again(ctx: ServiceContext, name: Name, link: Link) -> None:
    """Check a file that could not be sent to its end; mark it if it is damaged."""
    with suppress(BlobUnknown, NameUnknown, StoreUnavailable):
        await check_blob(ctx, name, link)


async def _is_back(ctx: ServiceContext, link: Link) -> bool:
    """Remove the mark of a file that was absent, or of another size, and is right again.

    The disk had not been mounted, or a backup was restored. A mark for a wrong hash or unreadable
    bytes is removed by fsck alone.
    """
    if link.damage not in (damage.ABSENT, damage.SIZE):
        return False
    if await find_damage(ctx.reader, link.object_id, link.size) is not None:
        return False
    seen = link.account_id, link.object_id, link.verified_at, link.damage
    await ctx.database.write(damage.confirm_read, *seen, _NEVER_VERIFIED)
    return True


async def mount_blob(
    ctx: ServiceContext,
    name: Name,
    digest: Digest,
    source: Name | None,
    rights: Rights,
) -> Link | None:
    """Link a blob of the same account into a repository without moving a byte (end-11).

    Without `source`, this repository and then others the caller may pull from are searched.
    Returns None when there is nothing to mount, whatever the reason, damage among them: a refusal
    must not tell what exists. It takes several transactions: rights are evaluated outside of any,
    and the store is asked last.

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


def detach_blob(tx: Connection, name: Name, digest: Digest, now: int) -> None:
    """Remove a blob from a repository; its bytes are left to the collector (end-10).

    Raises:
        BlobUnknown: the repository does not link it.
        BlobReferenced: a manifest here needs it.
        NameUnknown: there is no such repository.

    """
    lock_named_repository(tx, name)
    link = _find(tx, name, digest)  # under the lock, or another who deletes it may be before us
    lock_objects(tx, link.account_id, [link.object_id])
    if not blobs.unlink(tx, link.repository_id, link.digest):
        raise BlobReferenced(
            f"a manifest in {name} references {digest}; delete the manifest first",
            digest=str(digest),
        )
    condemn(tx, link.account_id, [link.object_id], now)


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
    """Return a link to mount from: the named source's, or any the caller may pull."""
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
