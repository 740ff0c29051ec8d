"""How much is still plain, and how the last turn in the background ended."""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.db.base import Connection, Database
from cloudcore.jobs.figures import chores
from registry.gc.sealing.turns import CHORE
from registry.metadata.collector import audit, plain_objects
from registry.metadata.collector.plain_objects import PlainTotals


class SealStatus(NamedTuple):
    """What is plain, of how much; moments in microseconds."""

    plain: PlainTotals
    object_count: int
    """Of all objects, plain or sealed."""
    stored_bytes: int
    turn_ended_at: int | None
    is_failed: bool
    """True if the last turn failed."""


async def seal_status(database: Database) -> SealStatus:
    """Return the status. Reads every blob's row."""
    return await database.read(_status)


def _status(tx: Connection) -> SealStatus:
    counted = audit.verified_totals(tx, 0)
    turn = next((each for each in chores(tx) if each.name == CHORE), None)
    return SealStatus(
        plain_objects.count_plain(tx),
        counted[0],
        counted[1],
        turn_ended_at=turn.ended_at if turn else None,
        is_failed=turn is not None and turn.is_failed,
    )
