"""Replace the bytes of an object, with the wraps that its links and tombstones need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from registry.blobstore.base import PLAIN, DataKey
from registry.errors import KmsKeyDeleted, KmsKeyDisabled
from registry.metadata.blobs import wraps
from registry.metadata.blobs.objects import NewObject
from registry.metadata.blobs.switching import switch_bytes
from registry.metadata.encryption_bindings import effective_keys
from registry.services.context import ServiceContext

Wraps = Mapping[str, bytes | None]
"""Wraps of one data key by KMS key; None under a key that cannot be used."""


class NotWrapped(Exception):
    """The data key is not wrapped under `kms_key_ids`, which links or tombstones need too."""

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
    """Wrap the data key of bytes under each of these KMS keys."""
    assert ctx.data_keys is not None
    made: dict[str, bytes | None] = {}
    for kms_key_id in kms_key_ids:
        try:
            made[kms_key_id] = await ctx.data_keys.wrap(account_id, kms_key_id, stored_id, data_key)
        except (KmsKeyDisabled, KmsKeyDeleted, Unavailable):
            made[kms_key_id] = None
    return made


def replace_bytes(
    tx: Connection,
    account_id: str,
    old_id: str,
    new: NewObject,
    made: Wraps,
    quarantined_id: str,
    now: int,
) -> bool:
    """Let the object `new.id`, which is locked, have the bytes `new.stored_id` instead of `old_id`.

    `made` are the wraps of the new bytes' data key; none if they are plain. Each link and tombstone
    gets one under the KMS key that it has, or if it was plain, under the one that its repository
    writes under. The old bytes go to the quarantine under `quarantined_id`, with their own wraps.

    Return False, and change nothing, if one of these KMS keys cannot be used, or the object has
    other bytes than `old_id`.

    Raises:
        NotWrapped: `made` lacks a KMS key.

    """
    if new.encoding == PLAIN:
        uses = wraps.find_uses(tx, account_id, new.id)
        used = {use.kms_key_id for use in uses if use.kms_key_id is not None}
        if not wraps.hold_enabled(tx, account_id, used):  # what is shut would be readable again
            return False
        if not switch_bytes(tx, account_id, old_id, new, quarantined_id, now):
            return False
        wraps.unseal_uses(tx, account_id, new.id)
        wraps.drop_all_wraps(tx, account_id, new.id)
        return True
    plain = needed_keys(tx, account_id, new.id)
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


def needed_keys(tx: Connection, account_id: str, object_id: str) -> dict[str, list[str]]:
    """Return the KMS keys that the links and tombstones of an object need to read sealed bytes.

    Each has the ids of the repositories that read plain bytes as yet.
    """
    uses = wraps.find_uses(tx, account_id, object_id)
    needed: dict[str, list[str]] = {each.kms_key_id: [] for each in uses if each.kms_key_id}
    plain = {each.repository_id for each in uses if each.kms_key_id is None}
    for key in effective_keys(tx, account_id, plain):
        needed.setdefault(key.kms_key_id, []).extend(key.repository_ids)
    return needed
