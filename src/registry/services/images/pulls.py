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
        self._counts: Counter[tuple[str, int]] = Counter()
        """Pulls by manifest and minute."""
        self.cache = CacheCounts()
        """What is counted of the pull-through cache; written with the pulls."""

    def note(self, manifest_id: str) -> None:
        """Record a pull of a manifest now."""
        self._counts[manifest_id, self._clock() // _MINUTE] += 1

    async def flush(self) -> None:
        """Write the recorded pulls; keep them for the next flush if the database fails."""
        cached = self.cache.take()
        if not self._counts and not any(cached):
            return
        noted, self._counts = self._counts, Counter()
        counts: Counter[tuple[str, int]] = Counter()
        last: dict[tuple[str, int], int] = {}  # minute by manifest and day
        for (manifest_id, minute), count in noted.items():
            key = manifest_id, minute * _MINUTE // DAY
            counts[key] += count
            last[key] = max(minute, last.get(key, 0))
        pulls = {manifest_id: last[manifest_id, day] * _MINUTE for manifest_id, day in sorted(last)}
        try:
            await self._database.write_relaxed(record_pulls, pulls, counts, cached)
        except BaseException:
            for key, count in counts.items():
                self._counts[key[0], last[key]] += count
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
