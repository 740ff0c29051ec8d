"""Record the times and numbers of image pulls: collected in memory, written in batches.

The same batches write other usage of accounts that is counted in memory. The last pull of an image
is recorded to the minute, the number of pulls per repository and day.

The savings of the pull-through cache are recorded the same way. A *pull* is a GET of a manifest; a
*miss* is a pull that fetches the manifest from the upstream. Bytes are counted where they are sent
and fetched; the rule of a repository is looked up when the counts are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.metering.needs import Meter
from cloudcore.metering.usage import HOUR, SkuUse, add
from registry.metadata.images.manifests import record_last_pulls
from registry.metadata.pull_through import rules as rows
from registry.metadata.pull_through.rules import Totals
from registry.metadata.repositories.daily_usage import DAY, accounts_of, add_pulls
from registry.services.resource_kinds import PULLS, TRANSFER


class PullCounts(NamedTuple):
    """The pull-through cache's counts in this process since the last flush."""

    misses: Counter[str]
    """By rule id."""
    fetched_bytes: Counter[str]
    """By rule id."""
    served_bytes: Counter[str]
    """By repository id; most of these repositories are not cached."""


class CacheCounts:
    """Collects the pull-through cache's counts in this process."""

    def __init__(self) -> None:
        self._counts = PullCounts(Counter(), Counter(), Counter())

    def fetched(self, rule_id: str, size: int, *, is_image: bool = False) -> None:
        """Count bytes fetched from an upstream; `is_image` means a manifest, and counts a miss."""
        self._counts.fetched_bytes[rule_id] += size
        if is_image:
            self._counts.misses[rule_id] += 1

    def served(self, repository_id: str, size: int) -> None:
        """Count blob bytes served to a client, from any repository."""
        self._counts.served_bytes[repository_id] += size

    def take(self) -> PullCounts:
        """Return the counts since the last call."""
        taken, self._counts = self._counts, PullCounts(Counter(), Counter(), Counter())
        return taken

    def put_back(self, counted: PullCounts) -> None:
        """Add back counts that could not be written."""
        for counter, lost in zip(self._counts, counted, strict=True):
            counter.update(lost)


def _record_counts(tx: Connection, pulls: Mapping[str, int], counted: PullCounts) -> None:
    """Add counts to the totals of cache rules; `pulls` maps manifest ids to numbers of pulls."""
    misses, fetched, served_by_repository = counted
    pulled: Counter[str] = Counter()
    served: Counter[str] = Counter()
    for manifest_id, rule_id in rows.rules_of_manifests(tx, list(pulls)):
        pulled[rule_id] += pulls[manifest_id]
    for repository_id, rule_id in rows.rules_of_repositories(tx, list(served_by_repository)):
        served[rule_id] += served_by_repository[repository_id]
    # Sorted, so that two processes lock rows in the same order and never deadlock.
    for rule_id in sorted({*pulled, *misses, *fetched, *served}):
        totals = Totals(pulled[rule_id], misses[rule_id], fetched[rule_id], served[rule_id])
        rows.add_totals(tx, rule_id, totals)


_MINUTE = 60 * MICROSECONDS


class PullLog:
    """Collects the pulls of this process since the last flush, by manifest and minute."""

    def __init__(self, database: Database, clock: Clock, region: str = "local") -> None:
        self._database = database
        self._clock = clock
        self._counts: Counter[tuple[str, int]] = Counter()
        """Pulls by manifest and minute."""
        self.cache = CacheCounts()
        """The counts of the pull-through cache, written with the pulls."""
        self.meter = Meter(clock, region)
        """Other usage of accounts, written with the pulls."""

    def note(self, manifest_id: str) -> None:
        """Record a pull of a manifest now."""
        self._counts[manifest_id, self._clock() // _MINUTE] += 1

    async def flush(self) -> None:
        """Write the recorded pulls; keep them for the next flush if the database fails."""
        cached, used = self.cache.take(), self.meter.take()
        if not self._counts and not any(cached) and not used:
            return
        noted, self._counts = self._counts, Counter()
        batch = Batch(noted, cached, used, self._clock() // HOUR, self.meter.region)
        try:
            await self._database.write_relaxed(record_pulls, batch)
        except BaseException:
            self._counts.update(noted)
            self.cache.put_back(cached)
            self.meter.put_back(used)
            raise


class Batch(NamedTuple):
    """The counts to write in one transaction."""

    pulls: Mapping[tuple[str, int], int]
    """Numbers of pulls by manifest id and minute."""
    cached: PullCounts
    used: Mapping[SkuUse, int]
    hour: int
    """The hour in which the bytes of `cached` were served (some perhaps a few seconds earlier)."""
    region: str


def record_pulls(tx: Connection, batch: Batch) -> None:
    """Record the last pull of each manifest, and add to the counters of pulls and usage.

    The counters are those of repositories, rules and accounts.
    """
    days: Counter[tuple[str, int]] = Counter()
    pulls: Counter[str] = Counter()
    last: dict[str, int] = {}
    for (manifest_id, minute), count in batch.pulls.items():
        days[manifest_id, minute * _MINUTE // DAY] += count
        pulls[manifest_id] += count
        last[manifest_id] = max(minute * _MINUTE, last.get(manifest_id, 0))
    # Sorted, so that two processes lock rows in the same order and never deadlock.
    record_last_pulls(tx, sorted(last.items()))
    owners = add_pulls(tx, days)
    _record_counts(tx, pulls, batch.cached)
    add(tx, _used(tx, batch, owners))


def _used(tx: Connection, batch: Batch, owners: Mapping[str, str]) -> Mapping[SkuUse, int]:
    """Return the usage of accounts in pulls and bytes; `owners` maps manifest to account ids."""
    used = Counter(batch.used)
    for (manifest_id, minute), count in batch.pulls.items():
        if manifest_id in owners:
            hour = minute * _MINUTE // HOUR
            used[SkuUse(owners[manifest_id], batch.region, PULLS.name, hour)] += count
    served = batch.cached.served_bytes
    for repository_id, account_id in accounts_of(tx, list(served)):
        used[SkuUse(account_id, batch.region, TRANSFER.name, batch.hour)] += served[repository_id]
    return used
