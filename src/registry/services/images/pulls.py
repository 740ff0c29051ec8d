"""Record when and how often images were pulled: collected in memory, written in batches.

The last pull of an image is kept by the minute, the number of pulls by repository and day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from registry.metadata.images.manifests import note_pulls
from registry.metadata.repositories.days import DAY, add_pulls
from registry.services.pull_through.stats import CacheCounts, Counted, record_counts

_MINUTE = 60 * MICROSECONDS


class PullLog:
    """The pulls in this process since the last flush; at most one write per image and minute."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._pending: dict[str, int] = {}
        self._counts: Counter[tuple[str, int]] = Counter()
        self.cache = CacheCounts()
        """What is counted of the pull-through cache; written with the pulls."""

    def note(self, manifest_id: str) -> None:
        """Record a pull of a manifest now."""
        now = self._clock()
        self._pending[manifest_id] = now - now % _MINUTE
        self._counts[manifest_id, now // DAY] += 1

    async def flush(self) -> None:
        """Write the recorded pulls; keep them for the next flush if the database fails."""
        cached = self.cache.take()
        if not self._pending and not any(cached):
            return
        pending, self._pending = self._pending, {}
        counts, self._counts = self._counts, Counter()
        try:
            await self._database.write_relaxed(record_pulls, pending, counts, cached)
        except BaseException:
            self._pending = pending | self._pending
            self._counts += counts
            self.cache.put_back(cached)
            raise


def record_pulls(
    tx: Connection,
    last: Mapping[str, int],
    counts: Mapping[tuple[str, int], int],
    cached: Counted,
) -> None:
    """Record the last pull of each manifest, and add to the pulls of repositories and rules."""
    # Sorted, so that two processes lock rows in the same order and never deadlock.
    note_pulls(tx, sorted(last.items()))
    add_pulls(tx, counts)
    pulls: Counter[str] = Counter()
    for (manifest_id, _day), count in counts.items():
        pulls[manifest_id] += count
    record_counts(tx, pulls, cached)
