"""When images were last pulled: noted in memory, written in batches, exact to the minute."""

from __future__ import annotations

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Database
from registry.metadata.images.manifests import note_pulls

_MINUTE = 60 * MICROSECONDS


class PullLog:
    """Pulls of this process since the last flush; at most one write per image and minute."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._pending: dict[str, int] = {}

    def note(self, manifest_id: str) -> None:
        """Note that a manifest is being pulled now."""
        now = self._clock()
        self._pending[manifest_id] = now - now % _MINUTE

    async def flush(self) -> None:
        """Write what was noted. What a failure keeps from the database is noted again."""
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        try:
            # In one order, so that two processes never wait for each other.
            await self._database.write_relaxed(note_pulls, sorted(pending.items()))
        except BaseException:
            self._pending = pending | self._pending
            raise
