"""Part of the composition root: wrap the data keys of pieces of buckets under another KMS key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from cloudcore.storage.bytes_port import SHREDDED, NewWrap, Rewrapped, SealedPiece
from registry.blobstore.base import DataKey
from registry.errors import KmsKeyDeleted, KmsKeyDisabled
from registry.keys import DataKeys, WrapBroken, WrappedKey

_REASONS: Final[dict[type[Exception], str]] = {
    KmsKeyDeleted: "key_deleted",
    KmsKeyDisabled: "key_disabled",
    WrapBroken: "unreadable",
}


async def rewrap_pieces(
    data_keys: DataKeys, account_id: str, kms_key_id: str, pieces: Sequence[SealedPiece]
) -> Rewrapped:
    """Wrap the data keys of pieces under a KMS key (`bytes_port.BucketBytes.rewrap`).

    Raises:
        KmsKeyDeleted, KmsKeyDisabled: of the KMS key to wrap under.
        Unavailable: the provider of a key's material is not there.

    """
    kept: Counter[str] = Counter()
    wraps: list[WrappedKey] = []
    for piece in pieces:
        if piece.kms_key_id is None or piece.wrapped is None:
            kept["plain"] += 1
        elif piece.encoding == SHREDDED:
            kept["key_deleted"] += 1
        else:
            wraps.append(WrappedKey(piece.kms_key_id, piece.wrapped, piece.id))
    wraps.sort(key=lambda wrap: wrap.kms_key_id)
    opened: list[tuple[WrappedKey, DataKey]] = []
    for _, group in groupby(wraps, lambda wrap: wrap.kms_key_id):
        opened += await _open_group(data_keys, account_id, list(group), kept)
    made = await data_keys.wrap_all(
        account_id, kms_key_id, [(wrap.stored_id, key) for wrap, key in opened]
    )
    return Rewrapped(
        [
            NewWrap(wrap.stored_id, wrap.kms_key_id, kms_key_id, wrapped)
            for (wrap, _), wrapped in zip(opened, made, strict=True)
        ],
        kept,
    )


async def _open_group(
    data_keys: DataKeys, account_id: str, wraps: Sequence[WrappedKey], kept: Counter[str]
) -> list[tuple[WrappedKey, DataKey]]:
    """Open wraps under one key, all at once; if one does not open, each by itself."""
    try:
        return list(zip(wraps, await data_keys.open_all(account_id, wraps), strict=True))
    except tuple(_REASONS) as error:
        if len(wraps) == 1 or not isinstance(error, WrapBroken):
            kept[_REASONS[type(error)]] += len(wraps)
            return []
    opened = []
    for wrap in wraps:
        opened += await _open_group(data_keys, account_id, [wrap], kept)
    return opened
