"""The bytes that each account stores, read in slices of the table of all objects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

from sqlalchemy import bindparam, func, select, text

from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement, page
from registry.metadata.tables import blob_objects

_SLICE: Final = 5000
"""Objects in one read, which takes some milliseconds."""

_o = blob_objects.c
_slice = page(
    select(_o.id, _o.account_id, _o.size)
    .where(
        _o.id > bindparam("after"),
        text("blob_objects.is_current AND blob_objects.state = 'live'"),
    )
    .order_by(_o.id)
).subquery("slice")
_SUMS: Final = Statement(
    select(
        _slice.c.account_id,
        func.sum(_slice.c.size),
        func.max(_slice.c.id),
        func.count(),
    ).group_by(_slice.c.account_id)
)


async def stored_by_account(database: Database) -> Mapping[str, int]:
    """Return the bytes of each account's blobs, each of them once, as they were pushed.

    So compression and sealing change no bill. What the collector condemned does not count. It takes
    about a second for a million blobs, in which other requests run in between.
    """
    sums: Counter[str] = Counter()
    after, count = "", _SLICE
    while count == _SLICE:
        rows = await database.read(_sums, after)
        count = sum(row[2] for row in rows.values())
        for account_id, (size, last, _) in rows.items():
            sums[account_id] += size
            after = max(after, last)
        await asyncio.sleep(0)  # a read of SQLite does not yield
    return sums


def _sums(tx: Connection, after: str) -> dict[str, tuple[int, str, int]]:
    """Return (bytes, the last id, the number) of the next objects, by account."""
    rows = tx.rows(_SUMS, after=after, limit=_SLICE)
    return {row[0]: (int(row[1]), row[2], int(row[3])) for row in rows}
