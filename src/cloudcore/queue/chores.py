"""Timers: settle due messages, and delete purged messages and deleted queues."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.queue import message_rows
from cloudcore.queue.messages import SETTLED_AT_ONCE, has_due, settle
from cloudcore.queue.needs import QueueNeeds
from cloudcore.queue.queue import Queue
from cloudcore.queue.queues import ROWS, erase_queue, list_deleted, list_live

EVERY_SECONDS: Final = 30
_PAGE: Final = 100
_DELETED_AT_ONCE: Final = 500
_EVERY_POSITION: Final = (1 << 63) - 1


async def settle_queues(needs: QueueNeeds) -> None:
    """Settle the due messages of all queues, a hundred per transaction; delete purged messages."""
    after = ""
    while queues := await needs.database.read(list_live, after, _PAGE):
        for queue in queues:
            await _delete_purged(needs, queue.account_id, queue.id, queue.purged_through)
            await _settle(needs, queue)
        after = queues[-1].id


async def erase_deleted_queues(needs: QueueNeeds) -> None:
    """Delete the messages of deleted queues, and then the queues' rows."""
    after = ""
    while found := await needs.database.read(list_deleted, after, _PAGE):
        for account_id, queue_id in found:
            await _delete_purged(needs, account_id, queue_id, _EVERY_POSITION)
            await needs.database.write(erase_queue, account_id, queue_id)
        after = found[-1][1]


async def _settle(needs: QueueNeeds, queue: Queue) -> None:
    while await needs.database.read(has_due, queue, needs.clock()):
        settled = await needs.database.write(_settle_current, queue, needs.clock())
        if settled < SETTLED_AT_ONCE:
            return


async def _delete_purged(
    needs: QueueNeeds, account_id: str, queue_id: str, purged_through: int
) -> None:
    terms = (account_id, queue_id, purged_through, _DELETED_AT_ONCE)
    while await needs.database.read(message_rows.has_purged, *terms[:3]):
        if not await needs.database.write(message_rows.delete_purged, *terms):
            return


def _settle_current(tx: Connection, queue: Queue, now: int) -> int:
    current = ROWS.find(tx, queue.account_id, queue.id)
    return 0 if current is None else settle(tx, current, now)
