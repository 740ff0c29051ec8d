"""Count the bytes that an account has in buckets, and keep them within its quota.

Every piece counts from when its row is written until its bytes are deleted, also the hour for which
those of a deleted or overwritten object stay. So to overwrite an object again and again fills no
disk. The count is the sum of a few rows, which writers choose by the piece: they do not wait for
each other, and to look at the quota costs the same whatever the account has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import bindparam, func, literal_column, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, count
from cloudcore.db.statement import Statement
from cloudcore.storage.errors import QuotaOfBytes
from cloudcore.storage.tables import storage_account_bytes

SHARDS: Final = 16

_a = storage_account_bytes.c
_add = insert(storage_account_bytes).values(bound(("account_id", "shard", "bytes")))
_CHANGE: Final = Statement(
    _add.on_conflict_do_update(
        index_elements=["account_id", "shard"], set_={"bytes": _a.bytes + _add.excluded.bytes}
    )
)
_USED: Final = Statement(
    select(func.coalesce(func.sum(_a.bytes), literal_column("0"))).where(
        _a.account_id == bindparam("account_id")
    )
)


def check_room(tx: Connection, account_id: str, adding: int, most: int) -> None:
    """Refuse bytes for which an account's buckets have no room.

    What is stored at the same moment is not seen, so an account may exceed its quota by that.

    Raise `QuotaOfBytes` if there are more than `most` with `adding`.
    """
    if adding <= 0:
        return
    used = used_bytes(tx, account_id)
    if used + adding > most:
        raise QuotaOfBytes(
            f"the buckets of the account may hold {most} bytes; they hold {used}, with those that"
            " were deleted within the last hour",
            quota="bucket_bytes",
            limit=most,
            used=used,
        )


def used_bytes(tx: Connection, account_id: str) -> int:
    """Return the bytes that an account has in buckets."""
    return int(count(tx, _USED, account_id=account_id))


def add_bytes(tx: Connection, account_id: str, piece_id: str, size: int) -> None:
    """Count the bytes of a new piece."""
    if size:
        shard = int(piece_id[-1], 16) % SHARDS
        tx.execute(_CHANGE, account_id=account_id, shard=shard, bytes=size)


def take_bytes(tx: Connection, sizes: Mapping[str, int]) -> None:
    """Count the bytes of deleted pieces, by account, no more."""
    for account_id in sorted(sizes):
        if sizes[account_id]:
            tx.execute(_CHANGE, account_id=account_id, shard=0, bytes=-sizes[account_id])
