"""Record when images were last pulled: collected in memory, written in batches, by the minute."""

from __future__ import annotations

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Database
from registry.metadata.images.manifests import note_pulls

_MINUTE = 60 * MICROSECONDS


class PullLog:
    """The pulls in this process since the last flush; at most one write per image and minute."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._pending: dict[str, int] = {}

    def note(self, manifest_id: str) -> None:
        """Record a pull of a manifest now."""
        now = self._clock()
        self._pending[manifest_id] = now - now % _MINUTE

    async def flush(self) -> None:
        """Write the recorded pulls; keep them for the next flush if the database fails."""
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        try:
            # Sorted, so that two processes lock rows in the same order and never deadlock.
            await self._database.write_relaxed(note_pulls, sorted(pending.items()))
        except BaseException:
            self._pending = pending | self._pending
            raise
