"""Write the rows that make stored bytes a blob; keep one copy of equal bytes per account.

The new bytes were just verified; the copy that the account keeps may have been damaged since. So
that copy is checked before the new bytes are dropped:

- its presence and size, at every push;
- if it was last verified more than `VERIFIED_FOR` ago, or is marked as damaged, the new bytes
  replace it unread.

The transaction that links the blob decides, under the object's lock. If it finds an object that was
not checked, it changes nothing; the object is checked, and the transaction is repeated. So a push
of new bytes, the most frequent one, reads nothing beforehand. A damaged object is marked. Then
the new file is moved over the old one, and the mark is removed. All files moved to one id hold the
same bytes, so several processes may do this at once. A process that dies in between has not
answered, and leaves the mark, so the next push heals the object. If the object was collected in
between, since the grace period of its link is shorter than the move took, the moved bytes are
deleted unless `entrepot gc recover` may still want them.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, OutcomeUnknown
from registry.blobstore.base import ObjectUnknown, Stored
from registry.errors import NameUnknown, StoreUnavailable
from registry.metadata.blobs import damage, uploads
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.objects import KeptObject, NewObject
from registry.metadata.blobs.uploads import Lease
from registry.metadata.collector import collection
from registry.metadata.repositories import live as repositories
from registry.services.blobs.damage import find_damage
from registry.services.blobs.upload_leases import UploadLeaseLost
from registry.services.context import ServiceContext

VERIFIED_FOR: Final = 7 * 24 * 3600 * MICROSECONDS
"""Microseconds for which verified bytes of the right size are assumed to be whole."""

_log = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """An object that was checked, and its damage by presence and size, if any."""

    object_id: str
    damage: str | None


class _Kept(NamedTuple):
    """The object that the account keeps."""

    object_id: str
    is_replaced: bool = False
    """True if the new bytes must replace the kept ones."""
    found: str | None = None
    """Damage that this push has found, or None."""


class _NotSeenError(Exception):
    """The account keeps an object that was not checked."""


async def record_blob(
    ctx: ServiceContext,
    repository_id: str,
    account_id: str,
    stored: Stored,
    lease: Lease | None = None,
) -> None:
    """Write the rows that make stored bytes a blob; drop the bytes if the account has the same.

    With `lease`, end its upload session in the same transaction.

    Raises:
        UploadLeaseLost: another holder has the lease, or the session has ended. The bytes stay.
        OutcomeUnknown: without a lease, the rows may be written or not, also by a second try. With
            one, they are not.
        NameUnknown: the repository was deleted meanwhile.
        StoreUnavailable: the store failed, or the new bytes or the kept object are gone.

    """
    kept = await _record(ctx, repository_id, account_id, stored, lease)
    if kept is None:
        await ctx.writer.remove_duplicate(stored.object_id)
        raise NameUnknown("the repository was deleted meanwhile")
    if kept.found is not None:
        ctx.on_damage()
        _log.error("blob %s is damaged (%s); a push heals it", stored.digest, kept.found)
    if kept.is_replaced:
        try:
            await ctx.writer.replace(kept.object_id, stored.object_id)
        except ObjectUnknown:
            raise StoreUnavailable("the bytes were removed while they were being stored") from None
        if not await ctx.database.write(damage.confirm, account_id, kept.object_id, ctx.clock()):
            if not await ctx.database.read(collection.is_left, kept.object_id):
                await ctx.writer.remove_duplicate(kept.object_id)
            raise StoreUnavailable("the blob was collected while it was being stored")
    elif kept.object_id != stored.object_id:
        await ctx.writer.remove_duplicate(stored.object_id)


async def _record(
    ctx: ServiceContext, repository_id: str, account_id: str, stored: Stored, lease: Lease | None
) -> _Kept | None:
    lost: OutcomeUnknown | None = None
    seen: _Seen | None = None
    while True:
        try:
            kept = await ctx.database.write(
                _record_rows, repository_id, account_id, stored, lease, seen, ctx.clock()
            )
        except _NotSeenError:
            seen = await _look(ctx, account_id, stored)
            continue
        except OutcomeUnknown as error:
            if lease is not None:
                return await _find_recorded(ctx, repository_id, stored, lease, seen, error)
            if lost is not None:
                raise
            lost = error
            continue  # all that it writes may be written twice
        if kept is None and lost is not None:
            raise lost  # the first try may have written the object's row: keep its bytes
        return kept


async def _find_recorded(
    ctx: ServiceContext,
    repository_id: str,
    stored: Stored,
    lease: Lease,
    seen: _Seen | None,
    error: OutcomeUnknown,
) -> _Kept:
    """Return the object that a transaction of unknown outcome has recorded; else raise `error`."""
    await _check_ended(ctx, lease, error)
    there = await ctx.database.read(blobs.linked_object, repository_id, stored.digest)
    if there is None or not (there.id == stored.object_id or _may_stay(there, seen, ctx.clock())):
        raise error
    return _Kept(there.id)


async def _check_ended(ctx: ServiceContext, lease: Lease, error: OutcomeUnknown) -> None:
    """Raise `error` unless the session has ended: its blob is recorded by the same transaction.

    If that transaction may still commit, it has locked the session's row, and this waits for it.

    Raises:
        UploadLeaseLost: another holder has taken the lease.

    """
    holder = await ctx.database.write(uploads.lock_holder, lease.upload_id)
    if holder == (lease.holder, lease.token):
        raise error
    if holder is not None:
        raise UploadLeaseLost


async def _look(ctx: ServiceContext, account_id: str, stored: Stored) -> _Seen | None:
    """Check presence and size of the account's copy of these bytes; None if it has none."""
    object_id = await ctx.database.read(damage.kept_object, account_id, stored.digest)
    if object_id is None:
        return None
    try:
        found = await find_damage(ctx.reader, object_id, stored.size)
    except StoreUnavailable:
        found = damage.UNREADABLE
    return _Seen(object_id, found)


def _may_stay(kept: KeptObject, seen: _Seen | None, now: int) -> bool:
    """Return True if the kept object was found whole, and need not be replaced."""
    return seen == (kept.id, None) and not _must_go(kept, now)


def _must_go(kept: KeptObject, now: int) -> bool:
    """Return True if the kept bytes must be replaced without checking them."""
    return kept.damage is not None or kept.verified_at + VERIFIED_FOR <= now


def _record_rows(
    tx: Connection,
    repository_id: str,
    account_id: str,
    stored: Stored,
    lease: Lease | None,
    seen: _Seen | None,
    now: int,
) -> _Kept | None:
    """Write the rows; return the object that the account keeps, or None if there is no repository.

    Raises:
        _NotSeenError: `seen` is not about this object; check it and repeat.
        UploadLeaseLost: the lease is held by another, or the session has ended.

    """
    if not repositories.is_live(tx, repository_id):
        return None
    new = NewObject(
        stored.object_id,
        stored.digest,
        stored.size,
        stored.stored_size,
        stored.encoding,
        stored_id=stored.object_id,
    )
    kept = blobs.keep_object(tx, account_id, new, now)
    result = _Kept(kept.id)
    if kept.id != new.id and not _may_stay(kept, seen, now):
        result = _Kept(kept.id, is_replaced=True)
        if not _must_go(kept, now):
            if seen is None or seen.object_id != kept.id or seen.damage is None:
                raise _NotSeenError
            damage.mark(tx, account_id, kept.id, kept.verified_at, seen.damage, now)
            result = result._replace(found=seen.damage)
    blobs.link_object(tx, repository_id, account_id, stored.digest, kept.id, stored.size, now)
    if stored.alias is not None:
        blobs.add_alias(tx, account_id, stored.alias, stored.digest)
    if lease is not None and not uploads.remove_upload(tx, lease):
        raise UploadLeaseLost
    return result
