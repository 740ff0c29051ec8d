"""How far the scrub in the background has come."""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.db.base import Connection, Database
from cloudcore.jobs.figures import chores
from cloudcore.storage import piece_checks
from cloudcore.storage.piece_checks import Totals
from registry.gc.scrub.turns import OBJECT_CHORE
from registry.metadata.collector import audit, scrub


class ScrubStatus(NamedTuple):
    """How many blobs were verified in the last period; moments in microseconds."""

    object_count: int
    stored_bytes: int
    verified_count: int
    verified_bytes: int
    damaged_count: int
    oldest_at: int | None
    """The earliest moment at which one of the blobs was last verified; None without blobs."""
    turn_ended_at: int | None
    is_failed: bool
    """True if the last turn failed."""
    pieces: Totals
    """Of buckets, counted likewise."""


async def scrub_status(database: Database, since: int) -> ScrubStatus:
    """Return the status; what was verified `since` counts. Reads every row of blobs and pieces."""
    return await database.read(_status, since)


def _status(tx: Connection, since: int) -> ScrubStatus:
    counted = audit.verified_totals(tx, since)
    turns = [each for each in chores(tx) if each.name == OBJECT_CHORE]
    turn = turns[0] if turns else None
    return ScrubStatus(
        *counted,
        oldest_at=scrub.oldest_verified_at(tx),
        turn_ended_at=turn.ended_at if turn else None,
        is_failed=turn is not None and turn.is_failed,
        pieces=piece_checks.totals(tx, since),
    )
