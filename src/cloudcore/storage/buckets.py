"""Find and authorize the buckets of an account, and change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.db.rows import json_text
from cloudcore.errors import Conflict
from cloudcore.jobs.runs import remove_runs
from cloudcore.quotas.limits import refuse
from cloudcore.resources.methods import Methods
from cloudcore.storage import bucket_rows as rows
from cloudcore.storage import errors, object_rows, upload_rows
from cloudcore.storage.bucket import BUCKET, Bucket, is_bucket_name, object_crn
from cloudcore.storage.bucket_rows import check_unused
from cloudcore.storage.cors import CorsRule
from cloudcore.storage.multipart import abort_if_open
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.tables import BUCKET_ROWS
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext

_ENDED_AT_ONCE: Final = 20
"""Maximum uploads, each of up to 10,000 parts, to abort in one transaction."""
EVERY_KEY = (b"", b"\xff")
"""The half-open range of all keys, (first, end): no UTF-8 contains the byte 0xff."""


def find_bucket(tx: Connection, account_id: str, region: str, name: str) -> Bucket:
    """Return the account's bucket with this name, or raise `NoSuchBucket`."""
    found = BUCKET_ROWS.find_named(tx, account_id, region, name)
    if found is None:
        raise errors.NoSuchBucket
    return found


def bucket_crn_of(ctx: RequestContext, name: str) -> str:
    """Return the CRN of a bucket of the caller's account, whether or not the bucket exists.

    Raise `NoSuchBucket` if the name is malformed.
    """
    if not is_bucket_name(name):
        raise errors.NoSuchBucket
    return BUCKET.crn(ctx.settings.region, account_of(ctx), name)


async def bucket_of_caller(ctx: RequestContext, name: str) -> Bucket:
    """Return a bucket of the caller's account, unauthorized: the handler authorizes each key.

    Raise `NoSuchBucket` if the account has no such bucket.
    """
    return await ctx.database.read(find_bucket, account_of(ctx), ctx.settings.region, name)


async def authorized_bucket(
    ctx: RequestContext, name: str, key: str | None = None, action: str | None = None
) -> Bucket:
    """Authorize the operation on a bucket of the caller's account; return the bucket.

    `action` replaces the operation's own action. With a `key`, which may be malformed, authorize on
    that object of the bucket.

    Raise `AccessDenied` if policies refuse, whether or not the bucket exists, `NoSuchBucket` if the
    account has no such bucket.
    """
    crn = bucket_crn_of(ctx, name)
    ctx.authorize(crn if key is None else object_crn(crn, key), action=action)
    return await bucket_of_caller(ctx, name)


def create_bucket(tx: Connection, bucket: Bucket) -> Bucket:
    """Insert a bucket, and return it.

    Raise `BucketAlreadyOwnedByYou` or `BucketAlreadyExists` if its name is taken in the region,
    `TooManyBuckets` if the account has reached its quota.
    """
    lock_account(tx, bucket.account_id)
    of = bucket.account_id, bucket.region
    use = BUCKET_ROWS.counted.read(tx, bucket.account_id, region=bucket.region)
    try:
        BUCKET_ROWS.add(tx, bucket)
    except Conflict:
        own = BUCKET_ROWS.find_named(tx, *of, bucket.name)
        raise (
            errors.BucketAlreadyExists if own is None else errors.BucketAlreadyOwnedByYou
        ) from None
    if use.used >= use.limit:
        refuse(BUCKET.room, use, "an account has at most {limit} buckets", errors.TooManyBuckets)
    BUCKET_ROWS.counted.emit_level(tx, bucket.account_id, use, bucket.created_at)
    return bucket


def _empty(tx: Connection, bucket: Bucket) -> None:
    """Delete the rows that belong to an empty bucket: completed uploads, runs and counts.

    Raise `InvalidBucketState` if another resource needs the bucket, `BucketNotEmpty` if the bucket
    has objects, or uploads that began after `end_uploads`.
    """
    check_unused(tx, bucket)
    of = bucket.account_id, bucket.id
    if object_rows.list_keys(tx, *of, *EVERY_KEY, 1):
        raise errors.BucketNotEmpty
    if upload_rows.list_uploads(tx, *of, EVERY_KEY, (b"", ""), 1):
        raise errors.BucketNotEmpty(
            "uploads began in the bucket while it was deleted; delete it again"
        )
    upload_rows.erase_ended(tx, *of)
    remove_runs(tx, bucket.id)
    rows.erase_counts(tx, bucket)


BUCKETS: Final = Methods(BUCKET_ROWS, before_delete=_empty)


async def end_uploads(needs: StorageNeeds, bucket: Bucket) -> None:
    """Abort all open uploads of a bucket to be deleted, in several transactions.

    Raise `BucketNotEmpty` if the bucket has objects, `InvalidBucketState` if another resource needs
    the bucket. After an error, the remaining uploads stay open.
    """

    def end_some(tx: Connection) -> bool:
        check_unused(tx, bucket)
        of = bucket.account_id, bucket.id
        if object_rows.list_keys(tx, *of, *EVERY_KEY, 1):
            raise errors.BucketNotEmpty
        found = upload_rows.list_uploads(tx, *of, EVERY_KEY, (b"", ""), _ENDED_AT_ONCE)
        for each in found:
            abort_if_open(tx, each, needs.clock())
        return len(found) == _ENDED_AT_ONCE

    while await needs.database.write(end_some):
        pass


def get_cors(bucket: Bucket) -> list[CorsRule]:
    """Return the CORS rules of a bucket; raise `NoSuchCORSConfiguration` if it has none."""
    if bucket.cors is None:
        raise errors.NoSuchCORSConfiguration
    return msgspec.json.decode(bucket.cors, type=list[CorsRule])


def put_cors(tx: Connection, bucket: Bucket, rules: Sequence[CorsRule] | None, now: int) -> Bucket:
    """Replace the CORS rules of a bucket, or delete them if `rules` is None; return the bucket.

    Raise `NoSuchBucket` if the bucket was deleted meanwhile.
    """
    cors = None if rules is None else json_text(rules)
    return BUCKETS.update(tx, bucket, {"cors": cors}, now)
