"""Expired rows are deleted in batches, each in a transaction of its own."""

from __future__ import annotations

from functools import partial
from typing import Final

from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import BATCH, forget_all
from cloudcore.web.rate_limits import Budget, count_request, forget_ended
from tests.databases import on_both_databases

BUDGET: Final = Budget(limit=1, window_seconds=60)
ENDED: Final = 61_000_000


def open_windows(tx: Connection, count: int) -> None:
    for number in range(count):
        count_request(tx, "test", f"subject {number}", BUDGET, 0)


@on_both_databases
async def test_a_transaction_deletes_a_batch_at_most(database: Database) -> None:
    await database.write(open_windows, 2 * BATCH + 1)
    await database.write(count_request, "test", "later", BUDGET, ENDED)
    deleted: list[int] = []

    def forget(tx: Connection, now: int) -> int:
        deleted.append(forget_ended(tx, now))
        return deleted[-1]

    assert await forget_all(database, forget, ENDED) == 2 * BATCH + 1
    assert deleted == [BATCH, BATCH, 1, 0]
    status = await database.write(
        partial(count_request, endpoint="test", subject="later", budget=BUDGET, now=ENDED)
    )
    assert status.is_refused  # its window is open still
