"""Write the rows that make stored bytes a blob; store equal bytes only once per account.

The new bytes were just verified; the account's existing copy may be damaged. So that copy is
checked before the new bytes are dropped:

- its presence, its size and the header of a sealed object, at every push;
- if it was last verified more than `VERIFIED_FOR` ago, or is marked as damaged, the new bytes
  replace it unread.

A sealed copy that stays must be readable under the KMS key of this repository too: its data key is
unwrapped by any KMS key that can, and wrapped again. If none can, the copy is retired: existing
links still use it, but the new bytes become the account's current copy.

The transaction that links the blob decides, under the object's lock. If it finds a copy that was
not checked, it changes nothing; the copy is checked, and the transaction repeated. So a push of new
bytes, the most frequent case, reads nothing beforehand. To replace a copy, the same transaction
switches the object to the new bytes and quarantines the old ones. So a process that dies has either
healed the object and all its links, or has left new bytes without a row, which the orphan scan
finds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import MappingProxyType
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, OutcomeUnknown
from cloudcore.errors import QuotaExceeded
from cloudcore.kms.rows import lock_key_shared
from registry.blobstore.base import PLAIN, Stored
from registry.errors import KmsKeyDeleted, KmsKeyDisabled, NameUnknown
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs import uploads
from registry.metadata.blobs.inline import add_body
from registry.metadata.blobs.new_blobs import PushTarget, add_new_blob, hold_target
from registry.metadata.blobs.objects import KeptObject, LinkTarget, NewObject
from registry.metadata.blobs.upload_leases import lock_holder
from registry.metadata.blobs.uploads import Lease, SessionEnd, UploadWrap
from registry.metadata.blobs.wraps import drop_unused_wraps, put_held_wrap, put_wrap
from registry.metadata.collector.audit import owned
from registry.metadata.collector.collection import condemn
from registry.metadata.quotas import NotCounted, begin_counting, count_new
from registry.metadata.repositories.repository import lock_repository
from registry.services.blobs.deduplication import (
    CheckedCopy,
    NotWrapped,
    Wraps,
    check_copy,
    replace_bytes,
    wrap_under,
)
from registry.services.blobs.links import leave
from registry.services.blobs.sealing import wrap_for_row
from registry.services.blobs.upload_leases import UploadLeaseLost
from registry.services.blobs.writing_keys import Seal
from registry.services.context import ServiceContext
from registry.services.pull_through.references import complete_blob

VERIFIED_FOR: Final = 7 * 24 * 3600 * MICROSECONDS
"""Microseconds for which verified bytes of the right size are assumed to be whole."""

_log = logging.getLogger(__name__)


class NewBytes(NamedTuple):
    """Bytes that were received for a repository, stored and verified."""

    repository_id: str
    account_id: str
    stored: Stored
    seal: Seal | UploadWrap | None
    """The data key and its wrap, or only the wrap if the data key was not opened; None if the bytes
    are plain."""
    is_cached: bool = False
    """True if the pull-through cache fetched the bytes: manifests may list the blob already."""
    target: PushTarget | None = None
    """The cached target, if the transaction that writes the rows is to check that it is unchanged.
    """


class _Kept(NamedTuple):
    """The stored bytes that the account has after the push: the new ones or its copy."""

    stored_id: str
    found: str | None = None
    """Damage that this push has found and healed, or None."""
    is_certain: bool = True
    """False if an earlier try may have written a row that names the new bytes."""


class _Prepared(NamedTuple):
    """What was read and prepared before the transaction that writes the rows."""

    seen: CheckedCopy | None = None
    """The account's copy, if it was checked."""
    made: Wraps = MappingProxyType({})
    """Wraps of the new bytes' data key under the KMS keys of existing links."""


class _CopyUncheckedError(Exception):
    """The account has a copy of these bytes that was not checked yet."""


class TargetChangedError(Exception):
    """The repository or its KMS key has changed since it was cached; nothing was written."""


class _NoRepositoryError(Exception):
    """The repository was deleted meanwhile."""


_REFUSALS: Final = (
    *(_NoRepositoryError, TargetChangedError, UploadLeaseLost),
    *(KmsKeyDeleted, KmsKeyDisabled, QuotaExceeded),
)


async def record_blob(ctx: ServiceContext, new: NewBytes, ending: SessionEnd | None = None) -> None:
    """Write the rows that make stored bytes a blob; drop the bytes if the account has a good copy.

    Raise the same errors as `record_new`.
    """
    if not await record_new(ctx, new, ending):
        await drop_stored(ctx, new.stored)


async def record_new(ctx: ServiceContext, new: NewBytes, ending: SessionEnd | None = None) -> bool:
    """Write the rows that make stored bytes a blob.

    Return False if the account has a good copy, so the caller must drop the bytes (`drop_stored`).
    With `ending`, end that upload session in the same transaction; then the bytes stay after an
    error. Without it they are dropped after KmsKeyDeleted, KmsKeyDisabled, QuotaExceeded or
    NameUnknown.

    Raises:
        UploadLeaseLost: another holder has the lease, or the session has ended.
        OutcomeUnknown: even after a second try, the rows may or may not be written. If `ending` has
            a lease and the bytes are in the store, the rows are not written.
        KmsKeyDeleted, KmsKeyDisabled: the KMS key can no longer be used.
        QuotaExceeded: the account has no room for the bytes.
        NameUnknown: the repository was deleted meanwhile.
        TargetChangedError: `NewBytes.target` is outdated. Only inline bytes may have a target.
        NotWrapped: the data key needs wraps under more KMS keys, and `new.seal` has only a wrap.
        StoreUnavailable: the store failed.

    """
    stored = new.stored
    try:
        kept = await _record(ctx, new, ending)
    except (KmsKeyDeleted, KmsKeyDisabled, QuotaExceeded):
        if ending is None:
            await drop_stored(ctx, stored)
        raise
    except _NoRepositoryError:
        if ending is None:
            await drop_stored(ctx, stored)
        raise NameUnknown("the repository was deleted meanwhile") from None
    if kept.found is not None:
        ctx.on_damage()
        _log.error("blob %s was damaged (%s); a push has healed it", stored.digest, kept.found)
    if kept.stored_id == stored.object_id:
        return True
    # After an unknown outcome, a row of any object, live or quarantined, may have the bytes.
    return not kept.is_certain and bool(await ctx.database.read(owned, [stored.object_id]))


async def drop_stored(ctx: ServiceContext, stored: Stored) -> None:
    """Delete stored bytes whose row was not written; inline bytes need no deletion."""
    if stored.body is None:
        await ctx.writer.remove_duplicate(stored.object_id)


async def _record(ctx: ServiceContext, new: NewBytes, ending: SessionEnd | None) -> _Kept:
    lost: OutcomeUnknown | None = None
    lease = ending.lease if ending else None
    looked = _Prepared()
    while True:
        try:
            kept = await _write_rows(ctx, new, ending, looked)
        except _CopyUncheckedError:
            of = new.account_id, new.repository_id, new.stored.digest
            looked = looked._replace(seen=await check_copy(ctx, *of))
        except NotWrapped as error:
            looked = looked._replace(
                made={**looked.made, **await _wrap_for_others(ctx, new, error)}
            )
        except OutcomeUnknown as error:
            is_last = lost is not None
            if lease is not None and (is_last or new.stored.body is None):
                return await _find_recorded(ctx, new, lease, looked.seen, error)
            if is_last:
                raise
            lost = error  # everything may be written again, except the end of a session
        except _REFUSALS as error:
            if lost is not None:
                return await _after_loss(ctx, new, lease, looked.seen, lost, error)
            raise
        else:
            return kept if lost is None else kept._replace(is_certain=False)


async def _write_rows(
    ctx: ServiceContext, new: NewBytes, ending: SessionEnd | None, looked: _Prepared
) -> _Kept:
    """Write the rows; if the account's bytes must be counted first, count them and repeat."""
    while True:
        try:
            return await ctx.database.write(
                _record_rows, new, ending, looked, ctx.new_id, ctx.clock()
            )
        except NotCounted:
            await ctx.database.write(begin_counting, new.account_id)


async def _after_loss(
    ctx: ServiceContext,
    new: NewBytes,
    lease: Lease | None,
    seen: CheckedCopy | None,
    lost: OutcomeUnknown,
    refusal: Exception,
) -> _Kept:
    """Return the bytes that the first try, whose outcome was lost, has recorded.

    The second try has raised `refusal`. Raise `OutcomeUnknown` (`lost`) if the first try may or may
    not have written the object's row, `UploadLeaseLost` if another request has the session.
    """
    if isinstance(refusal, UploadLeaseLost):
        if lease is not None:
            return await _find_recorded(ctx, new, lease, seen, lost)
        return await _find_linked(ctx, new, seen, lost)
    raise lost from None


async def _wrap_for_others(ctx: ServiceContext, new: NewBytes, needed: NotWrapped) -> Wraps:
    if not isinstance(new.seal, Seal):
        raise needed
    stored_id, data_key = new.stored.object_id, new.seal.data_key
    return await wrap_under(ctx, new.account_id, needed.kms_key_ids, stored_id, data_key)


async def _find_recorded(
    ctx: ServiceContext,
    new: NewBytes,
    lease: Lease,
    seen: CheckedCopy | None,
    error: OutcomeUnknown,
) -> _Kept:
    """Return the bytes that a transaction of unknown outcome recorded when it ended the session.

    A transaction that may still commit has locked the session's row, so this waits for it. Raise
    `error` if the session has not ended or the bytes are not there, `UploadLeaseLost` if another
    holder has taken the lease.
    """
    holder = await ctx.database.write(lock_holder, lease.upload_id)
    if holder == (lease.holder, lease.token):
        raise error
    if holder is not None:
        raise UploadLeaseLost
    return await _find_linked(ctx, new, seen, error)


async def _find_linked(
    ctx: ServiceContext, new: NewBytes, seen: CheckedCopy | None, error: OutcomeUnknown
) -> _Kept:
    """Return the linked blob's bytes if they are the new ones or a good copy, or raise `error`."""
    there = await ctx.database.read(blobs.linked_object, new.repository_id, new.stored.digest)
    if there is None or not (
        there.stored_id == new.stored.object_id or _can_be_kept(there, seen, ctx.clock())
    ):
        raise error
    return _Kept(there.stored_id, is_certain=False)


def _can_be_kept(kept: KeptObject, seen: CheckedCopy | None, now: int) -> bool:
    """Return True if the account's copy was checked, is intact, and need not be replaced."""
    is_whole = seen is not None and seen.stored_id == kept.stored_id and seen.damage is None
    return is_whole and not _must_be_replaced(kept, now)


def _must_be_replaced(kept: KeptObject, now: int) -> bool:
    """Return True if the account's copy must be replaced unread: damaged, or long unverified."""
    return kept.damage is not None or kept.verified_at + VERIFIED_FOR <= now


def _record_rows(
    tx: Connection,
    new: NewBytes,
    ending: SessionEnd | None,
    looked: _Prepared,
    new_id: Callable[[], str],
    now: int,
) -> _Kept:
    """Write the rows; return which stored bytes the account now has.

    Bytes that are replaced go to the quarantine under a new id.

    Raises:
        _CopyUncheckedError: the account's copy was not checked; check it and repeat.
        NotCounted: the account's bytes must be counted first; count them and repeat.
        QuotaExceeded: the account has no room for the bytes.
        NotWrapped: the new data key must be wrapped under more KMS keys.
        _NoRepositoryError: the repository was deleted.
        TargetChangedError: the target has changed since it was read.
        KmsKeyDeleted, KmsKeyDisabled: the KMS key can no longer be used.
        UploadLeaseLost: the session has changed since it was read, or another holds its lease.

    """
    account_id, stored = new.account_id, new.stored
    if _record_at_once(tx, new, ending, now):
        return _Kept(stored.object_id)
    if new.is_cached and lock_repository(tx, new.repository_id) is None:
        raise _NoRepositoryError
    # Before the object, so that a concurrent request that ends the session waits here.
    if ending is not None and not uploads.remove_upload(tx, ending, now):
        raise UploadLeaseLost
    result = _record_each(tx, new, looked, new_id, now)
    if stored.alias is not None:
        blobs.add_alias(tx, account_id, stored.alias, stored.digest)
    if new.is_cached:
        names = [stored.digest, *(() if stored.alias is None else (stored.alias,))]
        complete_blob(tx, new.repository_id, names, stored.size, now)
    return result


def _record_at_once(tx: Connection, new: NewBytes, ending: SessionEnd | None, now: int) -> bool:
    """Write all rows in one statement; return False if the push is not simple enough for that."""
    stored, target, wrap = new.stored, new.target, _wrap_of(new)
    if not tx.joins_changes or target is None or stored.body is None:
        return False
    if new.is_cached or stored.alias is not None:
        return False
    if target.kms_key_id != (None if wrap is None else wrap.kms_key_id):
        return False
    return add_new_blob(tx, target, new_object(stored), stored.body, wrap, ending, now)


def _record_each(
    tx: Connection, new: NewBytes, looked: _Prepared, new_id: Callable[[], str], now: int
) -> _Kept:
    """Write the rows of object, wrap, bytes and link in separate statements; see `_record_rows`."""
    account_id, stored = new.account_id, new.stored
    seen = None if new.target is None else hold_target(tx, new.target, stored.digest)
    if new.target is not None and seen is None:
        raise TargetChangedError
    made = new_object(stored)
    kept = blobs.keep_object(tx, account_id, made, now)
    result, object_id, kms_key_id = _choose(tx, new, made, kept, looked, new_id, now)
    if stored.body is not None and result.stored_id == made.stored_id:
        add_body(tx, made.stored_id, stored.body)
    link = new.repository_id, account_id, stored.digest, object_id, stored.size
    before = blobs.link_object(tx, *link, now, kms_key_id, seen)
    if before is None:
        raise _NoRepositoryError
    leave(tx, account_id, before, LinkTarget(object_id, kms_key_id), now)
    if object_id != kept.id:
        condemn(tx, account_id, [kept.id], now)
    elif kept.stored_id != made.stored_id and kept.encoding != PLAIN:
        drop_unused_wraps(tx, account_id, [kept.id])  # those it had while nothing linked it
    if object_id == made.id:
        count_new(tx, account_id, stored.size, kept.allowed, now)
    return result


def _choose(
    tx: Connection,
    new: NewBytes,
    made: NewObject,
    kept: KeptObject,
    looked: _Prepared,
    new_id: Callable[[], str],
    now: int,
) -> tuple[_Kept, str, str | None]:
    """Decide between the account's copy and the new bytes.

    Return which stored bytes the account has, and the object and the KMS key for the link.
    """
    account_id = new.account_id
    if kept.stored_id == made.stored_id:
        return _Kept(made.stored_id), kept.id, _put_own_wrap(tx, new, kept.id)
    if _can_be_kept(kept, looked.seen, now):
        assert looked.seen is not None
        if kept.encoding == PLAIN:
            return _Kept(kept.stored_id), kept.id, None
        key_id, wrapped = looked.seen.kms_key_id, looked.seen.wrapped
        if wrapped is not None and put_wrap(tx, account_id, kept.id, key_id, wrapped):
            return _Kept(kept.stored_id), kept.id, key_id
    else:
        found = None
        if not _must_be_replaced(kept, now):
            seen = looked.seen
            if seen is None or seen.stored_id != kept.stored_id or seen.damage is None:
                raise _CopyUncheckedError
            found = seen.damage
        same = made._replace(id=kept.id)
        if replace_bytes(tx, account_id, kept.stored_id, same, looked.made, new_id(), now):
            return _Kept(made.stored_id, found), kept.id, _put_own_wrap(tx, new, kept.id)
    blobs.retire_object(tx, account_id, kept.id)
    current = blobs.keep_object(tx, account_id, made, now)
    assert current.stored_id == made.stored_id, "the object before is locked"
    return _Kept(made.stored_id), current.id, _put_own_wrap(tx, new, current.id)


def _put_own_wrap(tx: Connection, new: NewBytes, object_id: str) -> str | None:
    """Write the wrap of the new bytes' data key; return its KMS key, or None if they are plain.

    Raise `KmsKeyDeleted` or `KmsKeyDisabled` if the KMS key can no longer be used.
    """
    wrap = _wrap_of(new)
    if wrap is None:
        return None
    if new.target is not None and new.target.kms_key_id == wrap.kms_key_id:
        put_held_wrap(tx, new.account_id, object_id, *wrap)
    elif not put_wrap(tx, new.account_id, object_id, *wrap):
        if lock_key_shared(tx, new.account_id, wrap.kms_key_id) == "deleted":
            raise KmsKeyDeleted
        raise KmsKeyDisabled
    return wrap.kms_key_id


def _wrap_of(new: NewBytes) -> UploadWrap | None:
    return wrap_for_row(new.seal) if isinstance(new.seal, Seal) else new.seal


def new_object(stored: Stored) -> NewObject:
    """Return the new object for stored bytes, with the same id."""
    return NewObject(
        stored.object_id,
        stored.digest,
        stored.size,
        stored.stored_size,
        stored.encoding,
        stored_id=stored.object_id,
        is_inline=stored.body is not None,
        checksum=stored.checksum,
    )
