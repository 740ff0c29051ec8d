"""Buckets of an account: changes with their rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.jobs.runs import remove_runs
from cloudcore.storage import bucket_rows as rows
from cloudcore.storage import object_rows, upload_rows
from cloudcore.storage.bucket_rows import Bucket, Held
from cloudcore.storage.cors import CorsRule
from cloudcore.storage.errors import (
    BucketAlreadyExists,
    BucketAlreadyOwnedByYou,
    BucketNotEmpty,
    NoSuchBucket,
    NoSuchCORSConfiguration,
    TooManyBuckets,
)
from cloudcore.storage.multipart import abort
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.rules import MAX_BUCKETS

_ENDED_AT_ONCE: Final = 20
"""Uploads, each of up to 10,000 parts, that end in one transaction."""
EVERY_KEY = (b"", b"\xff")
"""The span of all keys: no UTF-8 has this byte."""


def find_bucket(tx: Connection, account_id: str, region: str, name: str) -> Bucket:
    """Return the account's bucket of a name, or raise `NoSuchBucket`."""
    found = rows.find_bucket(tx, account_id, region, name)
    if found is None:
        raise NoSuchBucket
    return found


def create_bucket(tx: Connection, bucket: Bucket) -> Bucket:
    """Insert a bucket.

    Raises:
        BucketAlreadyOwnedByYou, BucketAlreadyExists: its name is taken in the region.
        TooManyBuckets: the account has `MAX_BUCKETS`.

    """
    lock_account(tx, bucket.account_id)
    used = rows.count_buckets(tx, bucket.account_id, bucket.region, "")
    if not rows.add_bucket(tx, bucket):
        own = rows.find_bucket(tx, bucket.account_id, bucket.region, bucket.name)
        raise BucketAlreadyExists if own is None else BucketAlreadyOwnedByYou
    if used >= MAX_BUCKETS:
        raise TooManyBuckets(
            f"an account has at most {MAX_BUCKETS} buckets",
            quota="buckets",
            limit=MAX_BUCKETS,
            used=used,
        )
    return bucket


def update_bucket(
    tx: Connection, bucket: Bucket, *, tags: Mapping[str, str] | None, key: tuple[str | None] | None
) -> Bucket:
    """Replace the tags of a bucket, or bind it to another KMS key, or both; None keeps what it has.

    A key applies to what is stored from now on, and `rewrapping` moves the rest. The bucket is
    locked until `tx` ends.

    Raises:
        NoSuchBucket: it was deleted meanwhile.

    """
    found = _locked(tx, bucket)
    changed = found._replace(
        tags=found.tags if tags is None else tags,
        kms_key_id=found.kms_key_id if key is None else key[0],
    )
    rows.save_bucket(tx, changed)
    return changed


def delete_bucket(tx: Connection, bucket: Bucket) -> None:
    """Delete an empty bucket.

    Raises:
        NoSuchBucket: it was deleted meanwhile.
        BucketNotEmpty: it has objects, or uploads began since `end_uploads`.

    """
    found = _locked(tx, bucket)
    of = found.account_id, found.id
    if object_rows.list_keys(tx, *of, *EVERY_KEY, 1):
        raise BucketNotEmpty
    if upload_rows.list_uploads(tx, *of, EVERY_KEY, (b"", ""), 1):
        raise BucketNotEmpty("uploads began in the bucket while it was deleted; delete it again")
    upload_rows.erase_ended(tx, *of)
    remove_runs(tx, found.id)
    rows.erase_bucket(tx, found)


async def end_uploads(needs: StorageNeeds, bucket: Bucket) -> None:
    """End all open uploads of a bucket that is to be deleted, some in each transaction.

    Raises:
        BucketNotEmpty: it has objects; then its uploads go on.

    """

    def end_some(tx: Connection) -> bool:
        of = bucket.account_id, bucket.id
        if object_rows.list_keys(tx, *of, *EVERY_KEY, 1):
            raise BucketNotEmpty
        found = upload_rows.list_uploads(tx, *of, EVERY_KEY, (b"", ""), _ENDED_AT_ONCE)
        for each in found:
            upload = upload_rows.lock_upload(tx, *of, each.id)
            if upload is not None and upload.ended_at is None:
                abort(tx, upload, needs.clock())
        return len(found) == _ENDED_AT_ONCE

    while await needs.database.write(end_some):
        pass


def get_cors(bucket: Bucket) -> list[CorsRule]:
    """Return the CORS rules of a bucket.

    Raises:
        NoSuchCORSConfiguration: it has none.

    """
    if bucket.cors is None:
        raise NoSuchCORSConfiguration
    return msgspec.json.decode(bucket.cors, type=list[CorsRule])


def put_cors(tx: Connection, bucket: Bucket, rules: Sequence[CorsRule] | None) -> Bucket:
    """Replace the CORS rules of a bucket; None takes them away, also if there are none.

    Raises:
        NoSuchBucket: the bucket was deleted meanwhile.

    """
    found = _locked(tx, bucket)
    cors = None if rules is None else msgspec.json.encode(rules).decode()
    changed = found._replace(cors=cors)
    rows.save_bucket(tx, changed)
    return changed


def held(tx: Connection, bucket: Bucket) -> Held:
    """Return what a bucket holds."""
    return rows.held_by_bucket(tx, bucket.account_id, bucket.id)


def _locked(tx: Connection, bucket: Bucket) -> Bucket:
    found = rows.lock_bucket(tx, bucket.account_id, bucket.id)
    if found is None:
        raise NoSuchBucket
    return found
