"""Write the rows that make stored bytes a blob; keep one copy of equal bytes per account.

The new bytes were just verified; the copy that the account keeps may have been damaged since. So
that copy is checked before the new bytes are dropped:

- its presence and size, at every push;
- if it was last verified more than `VERIFIED_FOR` ago, or is marked as damaged, the new bytes
  replace it unread.

The transaction that links the blob decides, under the object's lock. If it finds bytes that were
not checked, it changes nothing; they are checked, and the transaction is repeated. So a push of
new bytes, the most frequent one, reads nothing beforehand. To replace the kept bytes, the same
transaction switches the object to the new ones and quarantines the old ones
(`registry.metadata.blobs.switching`). So a process that dies has either healed the object and all
its links, or has left new bytes without a row, which the orphan scan finds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, OutcomeUnknown
from registry.blobstore.base import Stored
from registry.errors import NameUnknown, StoreUnavailable
from registry.metadata.blobs import damage, uploads
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.objects import KeptObject, NewObject
from registry.metadata.blobs.switching import switch_bytes
from registry.metadata.blobs.uploads import Lease
from registry.metadata.repositories import live as repositories
from registry.services.blobs.damage import find_damage
from registry.services.blobs.upload_leases import UploadLeaseLost
from registry.services.context import ServiceContext

VERIFIED_FOR: Final = 7 * 24 * 3600 * MICROSECONDS
"""Microseconds for which verified bytes of the right size are assumed to be whole."""

_log = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """Stored bytes that were checked, and their damage by presence and size, if any."""

    stored_id: str
    damage: str | None


class _Kept(NamedTuple):
    """The bytes that the account keeps."""

    stored_id: str
    found: str | None = None
    """Damage that this push has found and healed, or None."""


class _NotSeenError(Exception):
    """The account keeps bytes that were not checked."""


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
        StoreUnavailable: the store failed.

    """
    kept = await _record(ctx, repository_id, account_id, stored, lease)
    if kept is None:
        await ctx.writer.remove_duplicate(stored.object_id)
        raise NameUnknown("the repository was deleted meanwhile")
    if kept.found is not None:
        ctx.on_damage()
        _log.error("blob %s was damaged (%s); a push has healed it", stored.digest, kept.found)
    if kept.stored_id != stored.object_id:
        await ctx.writer.remove_duplicate(stored.object_id)


async def _record(
    ctx: ServiceContext, repository_id: str, account_id: str, stored: Stored, lease: Lease | None
) -> _Kept | None:
    lost: OutcomeUnknown | None = None
    seen: _Seen | None = None
    while True:
        try:
            kept = await ctx.database.write(
                _record_rows,
                repository_id,
                account_id,
                stored,
                lease,
                seen,
                ctx.new_id,
                ctx.clock(),
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
    """Return the bytes that a transaction of unknown outcome has recorded; else raise `error`."""
    await _check_ended(ctx, lease, error)
    there = await ctx.database.read(blobs.linked_object, repository_id, stored.digest)
    if there is None or not (
        there.stored_id == stored.object_id or _may_stay(there, seen, ctx.clock())
    ):
        raise error
    return _Kept(there.stored_id)


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
    kept = await ctx.database.read(blobs.find_object, account_id, stored.digest)
    if kept is None:
        return None
    try:
        found = await find_damage(ctx.reader, kept.stored_id, kept.stored_size)
    except StoreUnavailable:
        found = damage.UNREADABLE
    return _Seen(kept.stored_id, found)


def _may_stay(kept: KeptObject, seen: _Seen | None, now: int) -> bool:
    """Return True if the kept bytes were found whole, and need not be replaced."""
    return seen == (kept.stored_id, None) and not _must_go(kept, now)


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
    new_id: Callable[[], str],
    now: int,
) -> _Kept | None:
    """Write the rows; return the bytes that the account keeps, or None if there is no repository.

    Bytes that are replaced go to the quarantine under a new id.

    Raises:
        _NotSeenError: `seen` is not about the kept bytes; check them and repeat.
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
    result = _Kept(kept.stored_id)
    if kept.stored_id != new.stored_id and not _may_stay(kept, seen, now):
        found = None
        if not _must_go(kept, now):
            if seen is None or seen.stored_id != kept.stored_id or seen.damage is None:
                raise _NotSeenError
            found = seen.damage
        same = new._replace(id=kept.id)
        is_switched = switch_bytes(tx, account_id, kept.stored_id, same, new_id(), now)
        assert is_switched, "the object is locked"
        result = _Kept(new.stored_id, found)
    blobs.link_object(tx, repository_id, account_id, stored.digest, kept.id, stored.size, now)
    if stored.alias is not None:
        blobs.add_alias(tx, account_id, stored.alias, stored.digest)
    if lease is not None and not uploads.remove_upload(tx, lease):
        raise UploadLeaseLost
    return result
