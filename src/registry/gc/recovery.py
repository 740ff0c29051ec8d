"""Recover blobs from quarantine while their bytes exist.

A recovered blob is read through the KMS key under which its repository writes. If its data key is
wrapped only under another KMS key, it is unwrapped, and wrapped under this one, as for a mount.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from types import MappingProxyType
from typing import Final, NamedTuple

from blake3 import blake3

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from registry.blobstore.base import PLAIN, DataKey, ObjectDamaged, ObjectUnknown, OpenObject
from registry.blobstore.inline import open_inline
from registry.errors import (
    BlobUnknown,
    DigestMismatch,
    KmsKeyDisabled,
    NameUnknown,
    StoreUnavailable,
)
from registry.gc.object_check import VERIFYING
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.inline import read_body
from registry.metadata.blobs.objects import LinkTarget, NewObject
from registry.metadata.blobs.wraps import Wrap, drop_unused_wraps, put_wrap
from registry.metadata.collector import collection
from registry.metadata.collector.collection import Swept
from registry.metadata.encryption_bindings import effective_key
from registry.metadata.quotas import add_bytes
from registry.oci.digest import Hasher, new_hasher
from registry.services.blobs.deduplication import (
    CheckedCopy,
    NotWrapped,
    Wraps,
    check_copy,
    open_any,
    replace_bytes,
    wrap_under,
)
from registry.services.blobs.links import leave
from registry.services.context import ServiceContext

_TRIES: Final = 5
"""Attempts while others change the blob, or the KMS key of the repository."""
_LOCKED: Final = (
    "no KMS key that can be used now opens the blob, or the one of the repository cannot be used"
)


class _KeptNotSeenError(Exception):
    """The account has another copy of these bytes, which must be checked first."""


async def recover_blob(
    ctx: ServiceContext, account_id: str, repository_id: str, digest: str
) -> None:
    """Link the quarantined blob with this sha256 digest into a repository of its account.

    If the account has an intact copy again, link that copy; the quarantined bytes stay.

    Raises:
        BlobUnknown: no such blob is in quarantine, or its removal has begun.
        DigestMismatch: the quarantined bytes are damaged.
        KmsKeyDisabled: no KMS key opens the blob's data key now, or the repository's KMS key cannot
            be used.
        NameUnknown: the repository was deleted meanwhile.
        Unavailable: the provider of a KMS key is unavailable.

    """
    found = await find_whole_bytes(ctx, account_id, digest)
    made: Wraps = MappingProxyType({})
    seen: CheckedCopy | None = None
    for _ in range(_TRIES):
        try:
            await ctx.database.write(
                _recover, repository_id, found, made, seen, ctx.new_id, ctx.clock()
            )
        except NotWrapped as error:
            made = {**made, **await _wrap(ctx, account_id, found, error)}
        except _KeptNotSeenError:
            seen = await check_copy(ctx, account_id, repository_id, digest)
        else:
            return
    raise KmsKeyDisabled(_LOCKED)


async def _wrap(
    ctx: ServiceContext, account_id: str, found: WholeBytes, needed: NotWrapped
) -> Wraps:
    if found.data_key is None:
        return dict.fromkeys(needed.kms_key_ids)
    stored_id = found.swept.stored_id
    return await wrap_under(ctx, account_id, needed.kms_key_ids, stored_id, found.data_key)


def _recover(
    tx: Connection,
    repository_id: str,
    found: WholeBytes,
    made: Wraps,
    seen: CheckedCopy | None,
    new_id: Callable[[], str],
    now: int,
) -> None:
    """Link the recovered blob in the transaction `tx`.

    `made` are wraps of its data key, `seen` is the checked copy that the account has. Raise
    `NotWrapped` if `made` lacks a KMS key under which the data key must be wrapped;
    `_KeptNotSeenError` if the caller must check the account's copy, and repeat.
    """
    swept = found.swept
    account_id, digest = swept.account_id, swept.digest
    if not collection.lock_recoverable(tx, account_id, swept.id):
        raise unknown_in_quarantine(digest)
    new = NewObject(*(getattr(swept, name) for name in NewObject._fields))
    kept = blobs.keep_object(tx, account_id, new, now)
    is_taken = True
    if kept.stored_id == swept.stored_id:
        after = _own_target(tx, repository_id, found, made, kept.id)
    elif kept.damage is None:
        after, is_taken = _kept_target(tx, repository_id, account_id, kept, seen), False
    elif replace_bytes(
        tx, account_id, kept.stored_id, new._replace(id=kept.id), made, new_id(), now
    ):
        after = _own_target(tx, repository_id, found, made, kept.id)
    else:  # a repository has no usable key for the recovered bytes, so its object stays as it is
        blobs.retire_object(tx, account_id, kept.id)
        current = blobs.keep_object(tx, account_id, new, now)
        after = _own_target(tx, repository_id, found, made, current.id)
    assert after.object_id is not None
    before = blobs.link_object(
        tx, repository_id, account_id, digest, after.object_id, swept.size, now, after.kms_key_id
    )
    if before is None:
        raise NameUnknown("the repository was deleted")
    leave(tx, account_id, before, after, now)
    collection.condemn(tx, account_id, [kept.id], now)
    drop_unused_wraps(tx, account_id, [after.object_id])
    if is_taken:
        collection.release(tx, account_id, swept.id)
    if after.object_id == new.id:
        add_bytes(tx, account_id, swept.size)


def _own_target(
    tx: Connection, repository_id: str, found: WholeBytes, made: Wraps, object_id: str
) -> LinkTarget:
    """Return the target for a link to the recovered bytes; if they are sealed, write the wrap."""
    account_id = found.swept.account_id
    if found.swept.encoding == PLAIN:
        return LinkTarget(object_id, None)
    kms_key_id = effective_key(tx, account_id, repository_id).kms_key_id
    if kms_key_id not in made:
        raise NotWrapped([kms_key_id])
    wrapped = made[kms_key_id]
    if wrapped is None or not put_wrap(tx, account_id, object_id, kms_key_id, wrapped):
        raise KmsKeyDisabled(_LOCKED)
    return LinkTarget(object_id, kms_key_id)


def _kept_target(
    tx: Connection,
    repository_id: str,
    account_id: str,
    kept: blobs.KeptObject,
    seen: CheckedCopy | None,
) -> LinkTarget:
    """Return the target for a link to the account's own copy; if it is sealed, write the wrap."""
    if kept.encoding == PLAIN:
        return LinkTarget(kept.id, None)
    kms_key_id = effective_key(tx, account_id, repository_id).kms_key_id
    if seen is None or (seen.stored_id, seen.kms_key_id) != (kept.stored_id, kms_key_id):
        raise _KeptNotSeenError
    wrapped = seen.wrapped
    if wrapped is None or not put_wrap(tx, account_id, kept.id, kms_key_id, wrapped):
        raise KmsKeyDisabled(_LOCKED)
    return LinkTarget(kept.id, kms_key_id)


class WholeBytes(NamedTuple):
    """Intact bytes in quarantine."""

    swept: Swept
    data_key: DataKey | None
    """None if the bytes are plain, or no KMS key opens their data key now."""


async def find_whole_bytes(ctx: ServiceContext, account_id: str, digest: str) -> WholeBytes:
    """Return intact quarantined bytes with this sha256 digest, preferably ones that decrypt.

    Raises:
        BlobUnknown: no such blob is in quarantine, or its removal has begun.
        DigestMismatch: all copies in quarantine are damaged.
        Unavailable: the provider of a KMS key, with which a copy may decrypt, is unavailable.

    """
    refusal: BlobUnknown | DigestMismatch = unknown_in_quarantine(digest)
    locked: WholeBytes | None = None
    away: Unavailable | None = None
    for swept, wraps in await ctx.database.read(_list, account_id, digest):
        try:
            data_key = await open_any(ctx, account_id, swept.stored_id, "", wraps)
        except Unavailable as error:
            away = error
            continue
        try:
            await _verify(ctx, swept, data_key)
        except (BlobUnknown, DigestMismatch) as error:
            refusal = error
            continue
        found = WholeBytes(swept, data_key)
        if swept.encoding == PLAIN or data_key is not None:
            return found
        locked = locked or found
    if away is not None:
        raise away
    if locked is not None:
        return locked
    raise refusal


def unknown_in_quarantine(digest: str) -> BlobUnknown:
    """Return the error for a blob that is not in quarantine."""
    return BlobUnknown(f"no blob {digest} is in quarantine", digest=digest)


def _list(tx: Connection, account_id: str, digest: str) -> list[tuple[Swept, list[Wrap]]]:
    return [
        (swept, collection.quarantined_wraps(tx, account_id, swept.id))
        for swept in collection.list_recoverable(tx, account_id, digest)
    ]


async def _verify(ctx: ServiceContext, swept: Swept, data_key: DataKey | None) -> None:
    """Verify the bytes by their digest; if they are sealed without a data key, by their checksum.

    Raise `BlobUnknown` if the bytes are gone, `DigestMismatch` if they are damaged. If they cannot
    be read, raise `StoreUnavailable`; with a data key, `DigestMismatch`: a damaged frame looks the
    same.
    """
    is_closed = swept.encoding != PLAIN and data_key is None
    try:
        async with aclosing(await _open(ctx, swept, data_key, is_closed=is_closed)) as opened:
            if is_closed:
                actual = await VERIFYING(_hash, opened, blake3())
                is_whole = actual == swept.checksum
            else:
                actual = f"sha256:{await VERIFYING(_hash, opened, new_hasher('sha256'))}"
                is_whole = actual == swept.digest
    except ObjectUnknown:
        raise unknown_in_quarantine(swept.digest) from None
    except ObjectDamaged as error:
        raise DigestMismatch(str(error)) from None
    except StoreUnavailable as error:
        if data_key is None:
            raise
        raise DigestMismatch(str(error)) from None  # a frame that does not open, or the disk fails
    if not is_whole:
        raise DigestMismatch(f"its bytes hash to {actual}")


async def _open(
    ctx: ServiceContext, swept: Swept, data_key: DataKey | None, *, is_closed: bool
) -> OpenObject:
    """Open quarantined bytes; if `is_closed`, as they are stored, without their data key."""
    size = swept.stored_size if is_closed else swept.size
    if swept.is_inline:
        body = await ctx.database.read(read_body, swept.stored_id)
        return open_inline(body, swept.stored_id, size, data_key)
    if is_closed:
        return await ctx.reader.open_stored(swept.stored_id, size)
    return await ctx.reader.open(swept.stored_id, size, data_key)


def _hash(opened: OpenObject, hasher: Hasher) -> str:
    for view in opened.chunks():
        hasher.update(view)
    return hasher.hexdigest()
