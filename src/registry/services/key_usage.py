"""What a KMS key protects in repositories and buckets, and so what deleting it would shred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.kms.key import Key
from cloudcore.kms.rows import KEY_ROWS
from cloudcore.storage import piece_keys
from cloudcore.storage.piece_keys import KeyedPieces
from registry.metadata import key_usage as rows
from registry.metadata.key_usage import KeyImage, WrappedBlobs

MOST_LISTED: Final = 100
"""The most repositories and images that are named."""


class KeyUsage(NamedTuple):
    """What a key protects."""

    key: Key
    is_account_default: bool
    repository_count: int
    repositories: Sequence[tuple[str, str]]
    """(id, name) of the first of those bound to the key themselves."""
    blobs: WrappedBlobs
    image_count: int
    images: Sequence[KeyImage]
    bucket_count: int
    buckets: Sequence[tuple[str, str]]
    """(id, name) of the first of those bound to the key themselves."""
    pieces: KeyedPieces
    """What it seals in buckets, which no other key opens."""
    is_partial: bool
    """True if there is more than was read, so that the counts are lower bounds."""


def key_usage(
    tx: Connection, account_id: str, region: str, key_id: str, most: int = rows.MOST
) -> KeyUsage:
    """Return what a key of an account protects; read at most `most` rows of each kind.

    Raises:
        KeyMissing: the account has no such key.

    """
    key = KEY_ROWS.get(tx, account_id, region, key_id)
    repository_count = rows.count_bound_repositories(tx, account_id, key.id, most)
    blobs = rows.count_wrapped_blobs(tx, account_id, key.id, most)
    pieces = piece_keys.count_under(tx, account_id, key.id, most)
    bucket_count, buckets = piece_keys.bound_buckets(tx, account_id, key.id, MOST_LISTED)
    image_count, are_images_cut = rows.count_key_images(tx, account_id, key.id, most)
    return KeyUsage(
        key=key,
        is_account_default=rows.is_account_default(tx, account_id, key.id),
        repository_count=repository_count,
        repositories=rows.list_bound_repositories(tx, account_id, key.id, MOST_LISTED, most),
        blobs=blobs,
        image_count=image_count,
        images=rows.list_key_images(tx, account_id, key.id, MOST_LISTED, most),
        bucket_count=bucket_count,
        buckets=buckets,
        pieces=pieces,
        is_partial=are_images_cut or max(repository_count, blobs.total, pieces.pieces) >= most,
    )
