"""Recount the usage of buckets and accounts, and compare it with the stored counts, for fsck."""

from __future__ import annotations

from typing import Final

from sqlalchemy import func, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.metering.sampling import sums_by_account
from cloudcore.objects.damage import Miscount
from cloudcore.storage import tables
from cloudcore.storage.bucket_rows import BucketUsage

_b, _c, _o = tables.storage_buckets.c, tables.storage_counts.c, tables.storage_objects.c
_p, _u, _a = tables.storage_pieces.c, tables.storage_uploads.c, tables.storage_account_bytes.c

_NAMES: Final = Statement(select(_b.id, _b.name).order_by(_b.name))
_RECORDED: Final = Statement(
    select(_c.bucket_id, *(func.sum(_c[name]) for name in BucketUsage._fields)).group_by(
        _c.bucket_id
    )
)
_OBJECTS: Final = Statement(
    select(_o.bucket_id, func.count(), func.sum(_o.size)).group_by(_o.bucket_id)
)
_PARTS: Final = Statement(
    select(_u.bucket_id, func.sum(_p.size))
    .select_from(tables.storage_uploads.join(tables.storage_pieces, _p.upload_id == _u.id))
    .group_by(_u.bucket_id)
)
_RECORDED_BYTES: Final = Statement(
    select(_a.account_id, func.sum(_a.bytes)).group_by(_a.account_id)
)
_BYTES: Final = Statement(select(_p.account_id, func.sum(_p.size)).group_by(_p.account_id))


def miscounts(tx: Connection) -> list[Miscount]:
    """Return the buckets and accounts whose stored counts differ from a recount."""
    recorded = {row[0]: BucketUsage(*map(int, row[1:])) for row in tx.rows(_RECORDED)}
    objects = {row[0]: (int(row[1]), int(row[2])) for row in tx.rows(_OBJECTS)}
    parts = {row[0]: int(row[1]) for row in tx.rows(_PARTS)}
    found = [
        Miscount(
            f"bucket {name}",
            recorded.get(bucket_id, BucketUsage()),
            BucketUsage(*objects.get(bucket_id, (0, 0)), parts.get(bucket_id, 0)),
        )
        for bucket_id, name in tx.rows(_NAMES)
    ]
    noted, summed = sums_by_account(tx, _RECORDED_BYTES), sums_by_account(tx, _BYTES)
    found += [
        Miscount(f"bytes in buckets of the account {each}", noted.get(each, 0), summed.get(each, 0))
        for each in sorted({*noted, *summed})
    ]
    return [each for each in found if each.recorded != each.counted]
