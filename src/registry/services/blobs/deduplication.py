"""Check an account's copy of pushed bytes before another repository shares it, or replace it.

A shared copy must be intact. If it is sealed, its data key must also be wrapped under the other
repository's KMS key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from cloudcore.objects import damage
from cloudcore.objects.wraps import WrapBroken
from registry.blobstore.base import PLAIN, DataKey, ObjectDamaged, ObjectUnknown
from registry.blobstore.inline import open_inline
from registry.errors import KmsKeyDeleted, KmsKeyDisabled, StoreUnavailable
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs import wraps
from registry.metadata.blobs.damage import switch_bytes
from registry.metadata.blobs.inline import read_body
from registry.metadata.blobs.objects import KeptObject, NewObject
from registry.metadata.blobs.wraps import Wrap
from registry.metadata.encryption_bindings import effective_key, effective_keys
from registry.services.blobs.damage import find_object_damage
from registry.services.context import ServiceContext


class CheckedCopy(NamedTuple):
    """An account's copy of pushed bytes, and the result of its check."""

    stored_id: str
    damage: str | None
    """The damage found by presence, size and the header of a sealed object, or None."""
    kms_key_id: str
    """The KMS key that the repository writes under; empty if the copy is plain."""
    wrapped: bytes | None = None
    """The copy's data key wrapped under that KMS key; None if the copy is plain, or the data key
    could not be wrapped now."""


async def check_copy(
    ctx: ServiceContext, account_id: str, repository_id: str, digest: str
) -> CheckedCopy | None:
    """Check the account's copy of these bytes for a repository; None if there is no copy."""
    found = await ctx.database.read(_find_kept, account_id, repository_id, digest)
    if found is None:
        return None
    kept, kms_key_id, own, body = found
    seen = CheckedCopy(kept.stored_id, None, kms_key_id)
    try:
        found_damage = await find_object_damage(ctx.reader, kept, body)
    except StoreUnavailable:
        found_damage = damage.UNREADABLE
    if found_damage is not None:
        return seen._replace(damage=found_damage)
    if kept.encoding == PLAIN:
        return seen
    opened = None
    with suppress(Unavailable):  # a push does not wait for the provider of another key
        opened = await open_any(ctx, account_id, kept.stored_id, kms_key_id, own)
    if opened is None:
        return seen
    if not await _is_sealed_with(ctx, kept, body, opened):
        return seen._replace(damage=damage.DIGEST)
    wrapped = await wrap_again(ctx, account_id, kms_key_id, kept.stored_id, opened)
    return seen._replace(wrapped=wrapped)


async def open_any(
    ctx: ServiceContext, account_id: str, stored_id: str, preferred: str, own: Sequence[Wrap]
) -> DataKey | None:
    """Unwrap the data key of stored bytes from any of their wraps; None if no wrap opens.

    The wrap under the KMS key `preferred` is tried first. Raise `Unavailable` if none opens now,
    but one may once the provider of its KMS key is back.
    """
    if ctx.data_keys is None:
        return None
    away: Unavailable | None = None
    for wrap in sorted(own, key=lambda each: each.kms_key_id != preferred):
        if wrap.wrapped_data_key is None or wrap.key_state != "enabled":
            continue
        try:
            return await ctx.data_keys.open(
                account_id, wrap.kms_key_id, wrap.wrapped_data_key, stored_id
            )
        except (KmsKeyDisabled, KmsKeyDeleted, WrapBroken):
            continue
        except Unavailable as error:
            away = error
    if away is not None:
        raise away
    return None


async def wrap_again(
    ctx: ServiceContext, account_id: str, kms_key_id: str, stored_id: str, data_key: DataKey
) -> bytes | None:
    """Wrap the data key of stored bytes under a KMS key; None if that key cannot be used now."""
    assert ctx.data_keys is not None
    try:
        return await ctx.data_keys.wrap(account_id, kms_key_id, stored_id, data_key)
    except (KmsKeyDisabled, KmsKeyDeleted, Unavailable):
        return None


async def _is_sealed_with(
    ctx: ServiceContext, kept: KeptObject, body: bytes | None, data_key: DataKey
) -> bool:
    """Return True if a sealed object can be opened with this data key."""
    try:
        if kept.is_inline:
            open_inline(body, kept.stored_id, None, data_key)
            return True
        opened = await ctx.reader.open(kept.stored_id, None, data_key)
    except (ObjectUnknown, ObjectDamaged, StoreUnavailable):
        return False
    await opened.aclose()
    return True


def _find_kept(
    tx: Connection, account_id: str, repository_id: str, digest: str
) -> tuple[KeptObject, str, list[Wrap], bytes | None] | None:
    """Return the account's object, the repository's KMS key, the wraps, and the inline body."""
    kept = blobs.find_object(tx, account_id, digest)
    if kept is None:
        return None
    body = read_body(tx, kept.stored_id) if kept.is_inline else None
    if kept.encoding == PLAIN:
        return kept, "", [], body
    key = effective_key(tx, account_id, repository_id)
    return kept, key.kms_key_id, wraps.find_wraps(tx, account_id, kept.id), body


Wraps = Mapping[str, bytes | None]
"""Wraps of one data key by KMS key; None under a key that cannot be used."""


class NotWrapped(Exception):
    """The data key must also be wrapped under `kms_key_ids`, for existing links or tombstones."""

    def __init__(self, kms_key_ids: Iterable[str]) -> None:
        super().__init__("the data key is not wrapped under all KMS keys that need it")
        self.kms_key_ids = sorted(kms_key_ids)


async def wrap_under(
    ctx: ServiceContext,
    account_id: str,
    kms_key_ids: Iterable[str],
    stored_id: str,
    data_key: DataKey,
) -> Wraps:
    """Wrap the data key of stored bytes under each of these KMS keys; return the wraps."""
    return {
        each: await wrap_again(ctx, account_id, each, stored_id, data_key) for each in kms_key_ids
    }


def replace_bytes(
    tx: Connection,
    account_id: str,
    old_id: str,
    new: NewObject,
    made: Wraps,
    quarantined_id: str,
    now: int,
) -> bool:
    """Switch the locked object `new.id` from the bytes `old_id` to the bytes `new.stored_id`.

    `made` are the wraps of the new bytes' data key; empty if the bytes are plain. Each link and
    tombstone keeps its KMS key or, if it had none, gets the one that its repository writes under.
    (If the new bytes are plain, all lose their keys.) The old bytes go to the quarantine as
    `quarantined_id`, with their wraps.

    Return False, and change nothing, if one of these KMS keys cannot be used, or the object has
    other bytes than `old_id`. Raise `NotWrapped` if `made` lacks one of these KMS keys.
    """
    if new.encoding == PLAIN:
        uses = wraps.find_uses(tx, account_id, new.id)
        used = {use.kms_key_id for use in uses if use.kms_key_id is not None}
        if not wraps.hold_enabled(tx, account_id, used):  # else disabled keys would stop protecting
            return False
        if not switch_bytes(tx, account_id, old_id, new, quarantined_id, now):
            return False
        wraps.unseal_uses(tx, account_id, new.id)
        wraps.drop_all_wraps(tx, account_id, new.id)
        return True
    plain = _needed_keys(tx, account_id, new.id)
    if missing := plain.keys() - made.keys():
        raise NotWrapped(missing)
    needed = {kms_key_id: made[kms_key_id] for kms_key_id in plain}
    if not all(needed.values()) or not wraps.hold_enabled(tx, account_id, plain):
        return False
    if not switch_bytes(tx, account_id, old_id, new, quarantined_id, now):
        return False
    for kms_key_id, wrapped in needed.items():
        assert wrapped is not None
        wraps.put_wrap(tx, account_id, new.id, kms_key_id, wrapped)
        wraps.seal_uses(tx, account_id, new.id, plain[kms_key_id], kms_key_id)
    wraps.drop_other_wraps(tx, account_id, new.id, list(needed))
    return True


def _needed_keys(tx: Connection, account_id: str, object_id: str) -> dict[str, list[str]]:
    """Return the KMS keys under which an object's data key must be wrapped, with repository ids.

    Each link and tombstone needs its own key or, if it still reads plain bytes, the key that its
    repository writes under. The ids are those of the repositories that still read plain bytes.
    """
    uses = wraps.find_uses(tx, account_id, object_id)
    needed: dict[str, list[str]] = {each.kms_key_id: [] for each in uses if each.kms_key_id}
    plain = {each.repository_id for each in uses if each.kms_key_id is None}
    for key in effective_keys(tx, account_id, plain):
        needed.setdefault(key.kms_key_id, []).extend(key.repository_ids)
    return needed
