"""Write the rows that make stored bytes a blob; of bytes the account has already, keep one copy.

The new bytes were just verified, while the kept ones may have been damaged since. So the kept ones
are checked before the new ones are dropped:

- presence and size at every push;
- when the kept bytes were not verified for `VERIFIED_FOR`, or are marked as damaged, the new ones
  take their place, without reading the old ones.

The transaction that links the blob decides, under the object's lock; if the object was not checked
yet, it is checked and the transaction begins anew. A damaged one is marked. Then the new file is
moved over the old one, and the mark is removed. An id never means other bytes, so it does no harm
if several processes move a file there. A process that dies in between has not answered, and leaves
the mark, so the next push heals.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, OutcomeUnknown
from cloudcore.errors import Unavailable
from registry.blobstore.base import ObjectUnknown, Stored
from registry.errors import NameUnknown, StoreUnavailable
from registry.metadata.blobs import damage, uploads
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.objects import KeptObject, NewObject
from registry.metadata.blobs.uploads import Lease
from registry.metadata.repositories import live as repositories
from registry.services.blobs.damage import find_damage
from registry.services.blobs.upload_leases import UploadLeaseLost
from registry.services.context import ServiceContext

VERIFIED_FOR: Final = 7 * 24 * 3600 * MICROSECONDS
"""How long kept bytes of the right size are assumed to hash to their digest."""

_log = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """A kept object, and its damage as its presence and size show it."""

    object_id: str
    damage: str | None


class _Kept(NamedTuple):
    """The object the account keeps."""

    object_id: str
    is_replaced: bool = False
    """True if the new bytes must take the place of the kept ones."""
    found: str | None = None
    """A damage that was not known before."""


class _NotSeenError(Exception):
    """The account keeps another object than the one that was checked."""


async def record_blob(
    ctx: ServiceContext,
    repository_id: str,
    account_id: str,
    stored: Stored,
    lease: Lease | None = None,
) -> None:
    """Write the rows that make stored bytes a blob; drop them when the account has the same.

    With `lease`, the blob takes the place of the session it is of.

    Raises:
        LeaseLost: another holder has the lease, or the session has ended. The bytes stay.
        OutcomeUnknown: without a lease, the rows may be written or not. With one, they are not.
        NameUnknown: the repository was deleted meanwhile.
        StoreUnavailable: the store failed, or has lost the new bytes at once.

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
            raise StoreUnavailable("the bytes were removed as they were stored") from None
        await ctx.database.write(damage.confirm, account_id, kept.object_id, ctx.clock())
    elif kept.object_id != stored.object_id:
        await ctx.writer.remove_duplicate(stored.object_id)


async def _record(
    ctx: ServiceContext, repository_id: str, account_id: str, stored: Stored, lease: Lease | None
) -> _Kept | None:
    while True:
        seen = await _look(ctx, account_id, stored)
        try:
            return await ctx.database.write(
                _record_rows, repository_id, account_id, stored, lease, seen, ctx.clock()
            )
        except _NotSeenError:
            continue  # it was recorded a moment ago
        except Unavailable as error:
            # The connection may have died after the commit: look what is there now.
            if lease is not None:
                await _check_ended(ctx, lease, error)
            there = await ctx.database.read(blobs.linked_object, repository_id, stored.digest)
            if there is None or not (
                there.id == stored.object_id or _may_stay(there, seen, ctx.clock())
            ):
                raise
            return _Kept(there.id)


async def _check_ended(ctx: ServiceContext, lease: Lease, error: Unavailable) -> None:
    """Raise `error` unless the session has ended, as it does where its blob is recorded.

    While the change may still commit, its row is locked, and this waits.
    """
    if not isinstance(error, OutcomeUnknown):
        raise error
    holder = await ctx.database.write(uploads.lock_holder, lease.upload_id)
    if holder == (lease.holder, lease.token):
        raise error
    if holder is not None:
        raise UploadLeaseLost


async def _look(ctx: ServiceContext, account_id: str, stored: Stored) -> _Seen | None:
    """Check presence and size of the object the account keeps of these bytes, if any."""
    object_id = await ctx.database.read(damage.kept_object, account_id, stored.digest)
    if object_id is None:
        return None
    try:
        found = await find_damage(ctx.reader, object_id, stored.size)
    except StoreUnavailable:
        found = damage.UNREADABLE
    return _Seen(object_id, found)


def _may_stay(kept: KeptObject, seen: _Seen | None, now: int) -> bool:
    """Return True if the kept object was checked, and its bytes need not be replaced."""
    return seen == (kept.id, None) and not _must_go(kept, now)


def _must_go(kept: KeptObject, now: int) -> bool:
    """Return True if the kept bytes must be replaced, whatever a check would find."""
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
    """Return what the account keeps; None when the repository is gone."""
    if not repositories.is_live(tx, repository_id):
        return None
    new = NewObject(
        stored.object_id, stored.digest, stored.size, stored.stored_size, stored.encoding
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
