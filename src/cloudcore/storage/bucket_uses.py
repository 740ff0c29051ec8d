"""What else needs a bucket: other families note it, and the bucket is not deleted meanwhile."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import given, insert_new
from cloudcore.db.statement import Statement
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.errors import InvalidBucketState, NoSuchBucket
from cloudcore.storage.tables import BUCKET_ROWS, bucket_uses

_u = bucket_uses.c
_ADD: Final = Statement(insert_new(bucket_uses, _u.keys()))
_REMOVE: Final = Statement(bucket_uses.delete().where(given(_u.account_id, _u.user_id)))
_ONE: Final = Statement(
    select(_u.words)
    .where(_u.account_id == bindparam("account_id"), _u.bucket_id == bindparam("bucket_id"))
    .order_by(_u.user_id)
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)


def add_use(tx: Connection, bucket: Bucket, user_id: str, words: str) -> None:
    """Note that a bucket is needed; `words` say by what, such as ``database cluster shop``.

    Raise `NoSuchBucket` if it was deleted since it was read.
    """
    if BUCKET_ROWS.hold(tx, bucket.account_id, bucket.id) is None:
        raise NoSuchBucket
    of = {"bucket_id": bucket.id, "account_id": bucket.account_id}
    tx.execute(_ADD, **of, user_id=user_id, words=words)


def remove_uses(tx: Connection, account_id: str, user_id: str) -> None:
    """Note that nothing is needed by a user any more."""
    tx.execute(_REMOVE, account_id=account_id, user_id=user_id)


def check_unused(tx: Connection, bucket: Bucket) -> None:
    """Raise `InvalidBucketState`, which names who needs a bucket, if it is needed."""
    row = tx.row(_ONE, account_id=bucket.account_id, bucket_id=bucket.id)
    if row is not None:
        raise InvalidBucketState(row[0])
