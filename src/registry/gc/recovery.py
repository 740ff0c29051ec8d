"""Recover blobs from quarantine while their bytes exist.

A recovered blob is read through the KMS key that its repository writes under. If its data key is
wrapped under another one only, it is opened and wrapped again, as when it is mounted.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from cloudcore.db.base import Connection
from registry.blobstore.base import PLAIN
from registry.errors import KmsKeyDisabled, NameUnknown
from registry.gc.quarantined_bytes import WholeBytes, find_whole_bytes, unknown_in_quarantine
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.objects import NewObject, Target
from registry.metadata.blobs.wrap_removal import drop_unused_wraps
from registry.metadata.blobs.wraps import put_wrap
from registry.metadata.collector import collection
from registry.metadata.encryption_bindings import effective_key
from registry.services.blobs.known_bytes import SeenBytes, see_kept_bytes
from registry.services.blobs.moved_links import leave
from registry.services.blobs.replacing import NotWrapped, Wraps, replace_bytes, wrap_under
from registry.services.context import ServiceContext

_TRIES: Final = 5
"""Attempts while others change the blob, or the key of the repository."""
_LOCKED: Final = (
    "no KMS key that can be used now opens the blob, or the one of the repository cannot be used"
)


class _KeptNotSeenError(Exception):
    """The account keeps other bytes of this digest, which were not looked at."""


async def recover_blob(
    ctx: ServiceContext, account_id: str, repository_id: str, digest: str
) -> None:
    """Link the quarantined blob with this sha256 digest into a repository of its account.

    If the account has whole bytes of it again, link these; those in quarantine stay there.

    Raises:
        BlobUnknown: no such blob is in quarantine, or its removal has begun.
        DigestMismatch: its bytes are damaged.
        KmsKeyDisabled: no KMS key opens it now, or the repository's key cannot be used.
        NameUnknown: the repository was deleted meanwhile.
        Unavailable: the provider of its KMS key's material is not there.

    """
    found = await find_whole_bytes(ctx, account_id, digest)
    made: Wraps = MappingProxyType({})
    seen: SeenBytes | None = None
    for _ in range(_TRIES):
        try:
            await ctx.database.write(
                _recover, repository_id, found, made, seen, ctx.new_id, ctx.clock()
            )
        except NotWrapped as error:
            made = {**made, **await _wrap(ctx, account_id, found, error)}
        except _KeptNotSeenError:
            seen = await see_kept_bytes(ctx, account_id, repository_id, digest)
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
    seen: SeenBytes | None,
    new_id: Callable[[], str],
    now: int,
) -> None:
    """Link the blob.

    Raises:
        NotWrapped: `made` lacks a KMS key under which the data key must be wrapped.
        _KeptNotSeenError: look at the bytes that the account keeps, and repeat.

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
    else:  # some repository could not read the recovered bytes: let it keep what it has
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


def _own_target(
    tx: Connection, repository_id: str, found: WholeBytes, made: Wraps, object_id: str
) -> Target:
    """Return what the link names that reads the recovered bytes; write its wrap."""
    account_id = found.swept.account_id
    if found.swept.encoding == PLAIN:
        return Target(object_id, None)
    kms_key_id = effective_key(tx, account_id, repository_id).kms_key_id
    if kms_key_id not in made:
        raise NotWrapped([kms_key_id])
    wrapped = made[kms_key_id]
    if wrapped is None or not put_wrap(tx, account_id, object_id, kms_key_id, wrapped):
        raise KmsKeyDisabled(_LOCKED)
    return Target(object_id, kms_key_id)


def _kept_target(
    tx: Connection,
    repository_id: str,
    account_id: str,
    kept: blobs.KeptObject,
    seen: SeenBytes | None,
) -> Target:
    """Return what the link names that reads the bytes that the account keeps; write its wrap."""
    if kept.encoding == PLAIN:
        return Target(kept.id, None)
    kms_key_id = effective_key(tx, account_id, repository_id).kms_key_id
    if seen is None or (seen.stored_id, seen.kms_key_id) != (kept.stored_id, kms_key_id):
        raise _KeptNotSeenError
    wrapped = seen.wrapped
    if wrapped is None or not put_wrap(tx, account_id, kept.id, kms_key_id, wrapped):
        raise KmsKeyDisabled(_LOCKED)
    return Target(kept.id, kms_key_id)
