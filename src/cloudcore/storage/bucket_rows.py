"""Queries of buckets, and of the usage of buckets and accounts.

An account's quota includes a piece from the insertion of its row until its bytes are deleted. The
bytes of a deleted or overwritten object are deleted an hour later, so overwriting an object again
and again cannot fill the disk.

Counts are sharded: a count is the sum of up to `SHARDS` rows, and a writer updates one of them,
selected by the id of the added piece or object. So writers rarely wait for each other, and a check
of the quota costs the same however much the account has stored.

Other families record which buckets they need (`add_use`); a bucket in use cannot be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, select
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ZERO, bound, first, given, insert_new, total
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.metering.sampling import measure_of
from cloudcore.quotas.limits import Counted, QuotaUse, refuse
from cloudcore.storage import tables
from cloudcore.storage.bucket import BUCKET_BYTES, Bucket
from cloudcore.storage.errors import BytesQuotaExceeded, InvalidBucketState, NoSuchBucket

SHARDS: Final = 16

_b = tables.storage_buckets.c
_c = tables.storage_counts.c
_o, _p = tables.storage_objects.c, tables.storage_pieces.c


class BucketUsage(NamedTuple):
    """The usage of a bucket, or a difference to add to the usage."""

    objects: int = 0
    object_bytes: int = 0
    upload_bytes: int = 0
    """Bytes of the parts of open uploads."""


_FIND_PUBLIC: Final = Statement(tables.BUCKET_ROWS.columns.where(given(_b.region, _b.name)))
_KEEP: Final = Statement(
    tables.BUCKET_ROWS.columns.where(given(_b.id, _b.account_id)).with_for_update(key_share=True)
)
_LIST: Final = paged(
    tables.BUCKET_ROWS.columns.where(
        given(_b.account_id, _b.region),
        (bindparam("name") == sql("''")) | (_b.name == bindparam("name")),
        _b.name > bindparam("after"),
    ).order_by(_b.name)
)
_OF_BUCKET: Final = given(_c.bucket_id, _c.account_id)
_ERASE_COUNTS: Final = Statement(tables.storage_counts.delete().where(_OF_BUCKET))
_COUNTED: Final = ("bucket_id", "shard", "account_id", *BucketUsage._fields)
_add_count = insert(tables.storage_counts).values(bound(_COUNTED))
_CHANGE: Final = Statement(
    _add_count.on_conflict_do_update(
        index_elements=["bucket_id", "shard"],
        set_={name: _c[name] + _add_count.excluded[name] for name in BucketUsage._fields},
    )
)
_sums = [total(_c[name]) for name in BucketUsage._fields]
_HELD: Final = Statement(select(*_sums).where(_OF_BUCKET))
_HELD_EACH: Final = Statement(
    select(_c.bucket_id, *_sums)
    .where(given(_c.account_id), _c.bucket_id.in_(listed("ids")))
    .group_by(_c.bucket_id)
)
_DAMAGED_OBJECTS: Final = (
    select(_o.key, func.min(_p.damaged_at).label("damaged_at"))
    .select_from(tables.storage_pieces)
    .join(tables.storage_objects, _o.id == _p.object_id)
    .where(sql("damage IS NOT NULL"), given(_p.account_id, _o.bucket_id))
    .group_by(_o.key)
    .limit(bindparam("most"))
    .offset(ZERO)
    .subquery("damaged")
)
_DAMAGED: Final = paged(
    select(_DAMAGED_OBJECTS.c.key, _DAMAGED_OBJECTS.c.damaged_at).order_by(_DAMAGED_OBJECTS.c.key)
)


def find_public_bucket(tx: Connection, region: str, name: str) -> Bucket | None:
    """Return the bucket with this name in a region, of any account, or None. Only for CORS."""
    return tables.BUCKET_ROWS.read_one(tx, _FIND_PUBLIC, region=region, name=name)


def keep_bucket(tx: Connection, account_id: str, bucket_id: str) -> Bucket | None:
    """Lock a bucket until `tx` ends; return the bucket, or None if it does not exist.

    Meanwhile, other transactions can add objects, but not change the bucket.
    """
    return tables.BUCKET_ROWS.read_one(tx, _KEEP, account_id=account_id, id=bucket_id)


def list_buckets(
    tx: Connection, account_id: str, region: str, asked: Sequence[str], after: str, limit: int
) -> Sequence[Bucket]:
    """Return up to `limit` buckets of an account with names after `after`, sorted by name.

    `asked` has one element: the only name to return, or "" for all.
    """
    (name,) = asked
    of = {"account_id": account_id, "region": region, "name": name}
    return tables.BUCKET_ROWS.read_all(tx, _LIST, **of, after=after, limit=limit)


def erase_counts(tx: Connection, bucket: Bucket) -> None:
    """Delete the counts of an empty bucket."""
    tx.execute(_ERASE_COUNTS, bucket_id=bucket.id, account_id=bucket.account_id)


def change_usage(
    tx: Connection, account_id: str, bucket_id: str, by: str, change: BucketUsage
) -> None:
    """Add `change` to a bucket's usage; `by`, an object's or upload's id, selects the shard."""
    if not any(change):
        return
    shard = int(by[-1], 16) % SHARDS
    tx.execute(_CHANGE, account_id=account_id, bucket_id=bucket_id, shard=shard, **change._asdict())


def usage_of_bucket(tx: Connection, account_id: str, bucket_id: str) -> BucketUsage:
    """Return the usage of a bucket."""
    return _held(tx.row(_HELD, account_id=account_id, bucket_id=bucket_id))


def usage_by_bucket(
    tx: Connection, account_id: str, bucket_ids: Sequence[str]
) -> dict[str, BucketUsage]:
    """Map bucket id to usage; buckets that were always empty are absent."""
    rows = tx.rows(_HELD_EACH, account_id=account_id, ids=text_list(bucket_ids))
    return {row[0]: _held(row[1:]) for row in rows}


def damaged_keys(
    tx: Connection, account_id: str, bucket_id: str, most: int
) -> list[tuple[str, int]]:
    """Return (key, time of discovery) of up to `most` damaged objects of a bucket, sorted by key.

    Times are in microseconds since the epoch.
    """
    rows = tx.rows(_DAMAGED, account_id=account_id, bucket_id=bucket_id, most=most, limit=most)
    return [(bytes(row[0]).decode(), row[1]) for row in rows]


def _held(row: Row | None) -> BucketUsage:
    return BucketUsage() if row is None else BucketUsage(*map(int, row))


_a = tables.storage_account_bytes.c
_add_bytes = insert(tables.storage_account_bytes).values(bound(("account_id", "shard", "bytes")))
_CHANGE_BYTES: Final = Statement(
    _add_bytes.on_conflict_do_update(
        index_elements=["account_id", "shard"], set_={"bytes": _a.bytes + _add_bytes.excluded.bytes}
    )
)
BYTES: Final = Counted(BUCKET_BYTES, select(func.sum(_a.bytes)).where(given(_a.account_id)))
_BY_ACCOUNT: Final = Statement(select(_a.account_id, func.sum(_a.bytes)).group_by(_a.account_id))


def check_room(tx: Connection, account_id: str, adding: int, most: int) -> QuotaUse | None:
    """Raise `BytesQuotaExceeded` if `adding` more bytes would exceed an account's quota.

    Return the usage, to pass to `emit_level`, or None if `adding` is 0 or less. `most` is the
    default quota. Concurrent uploads are not counted, so their bytes may exceed the quota.
    """
    if adding <= 0:
        return None
    use = BYTES.read(tx, account_id, most)
    if use.used + adding > use.limit:
        refuse(
            BUCKET_BYTES,
            use,
            "the buckets of the account may hold {limit} bytes; they hold {used}, with those that"
            " were deleted within the last hour",
            BytesQuotaExceeded,
        )
    return use


def emit_level(tx: Connection, account_id: str, use: QuotaUse | None, added: int, now: int) -> None:
    """Publish an event if `added` bytes bring an account to a new level of its quota.

    `use` is the result of `check_room`; if `use` is None, publish nothing. See
    `Counted.emit_level`.
    """
    if use is not None:
        BYTES.emit_level(tx, account_id, use, now, added)


bytes_by_account: Final = measure_of(_BY_ACCOUNT)
"""Maps account ids to the number of bytes in the account's buckets."""


def add_bytes(tx: Connection, account_id: str, piece_id: str, size: int) -> None:
    """Add the bytes of a new piece to the account's usage."""
    if size:
        shard = int(piece_id[-1], 16) % SHARDS
        tx.execute(_CHANGE_BYTES, account_id=account_id, shard=shard, bytes=size)


def subtract_bytes(tx: Connection, sizes: Mapping[str, int]) -> None:
    """Subtract the bytes of deleted pieces from the usage; `sizes` maps account ids to bytes."""
    for account_id in sorted(sizes):
        if sizes[account_id]:
            tx.execute(_CHANGE_BYTES, account_id=account_id, shard=0, bytes=-sizes[account_id])


_u = tables.bucket_uses.c
_ADD: Final = Statement(insert_new(tables.bucket_uses, _u.keys()))
_REMOVE: Final = Statement(tables.bucket_uses.delete().where(given(_u.account_id, _u.user_id)))
_ONE: Final = Statement(
    first(select(_u.words).where(given(_u.account_id, _u.bucket_id)).order_by(_u.user_id))
)


def add_use(tx: Connection, bucket: Bucket, user_id: str, words: str) -> None:
    """Record that the resource with the id `user_id` needs a bucket.

    `words` name the resource in error messages, such as ``database cluster shop``.

    Raise `NoSuchBucket` if the bucket was deleted since it was read.
    """
    if tables.BUCKET_ROWS.hold(tx, bucket.account_id, bucket.id) is None:
        raise NoSuchBucket
    of = {"bucket_id": bucket.id, "account_id": bucket.account_id}
    tx.execute(_ADD, **of, user_id=user_id, words=words)


def remove_uses(tx: Connection, account_id: str, user_id: str) -> None:
    """Delete the records of the buckets that the resource `user_id` needs."""
    tx.execute(_REMOVE, account_id=account_id, user_id=user_id)


def check_unused(tx: Connection, bucket: Bucket) -> None:
    """Raise `InvalidBucketState`, which names the resource, if a resource needs the bucket."""
    row = tx.row(_ONE, account_id=bucket.account_id, bucket_id=bucket.id)
    if row is not None:
        raise InvalidBucketState(row[0])
