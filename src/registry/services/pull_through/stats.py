"""Count what the cache saves: in the memory of a process, written with its pulls in batches.

A *pull* is a GET of a manifest, a *miss* one for which the upstream was asked for the manifest.
Pulls come from the log of all pulls (`services.images.pulls`), and bytes from those who send and
fetch them. To which rule a repository belongs is looked up when the counts are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from cloudcore.db.base import Connection
from registry.metadata.pull_through import stats as rows
from registry.metadata.pull_through.stats import Totals


class Counted(NamedTuple):
    """What a process has counted since the last flush."""

    misses: Mapping[str, int]
    """By rule."""
    fetched_bytes: Mapping[str, int]
    """By rule."""
    served_bytes: Mapping[str, int]
    """By repository, of which most are not cached."""


class CacheCounts:
    """Counts of this process since the last flush."""

    def __init__(self) -> None:
        self._misses: Counter[str] = Counter()
        self._fetched: Counter[str] = Counter()
        self._served: Counter[str] = Counter()

    def fetched(self, rule_id: str, size: int, *, is_image: bool = False) -> None:
        """Count bytes that came from an upstream; with `is_image`, they are a manifest's."""
        self._fetched[rule_id] += size
        if is_image:
            self._misses[rule_id] += 1

    def served(self, repository_id: str, size: int) -> None:
        """Count bytes of blobs that a client of any repository gets."""
        self._served[repository_id] += size

    def take(self) -> Counted:
        """Return the counts, and reset them to zero."""
        taken = Counted(self._misses, self._fetched, self._served)
        self._misses, self._fetched, self._served = Counter(), Counter(), Counter()
        return taken

    def put_back(self, counted: Counted) -> None:
        """Count again what could not be written."""
        self._misses.update(counted.misses)
        self._fetched.update(counted.fetched_bytes)
        self._served.update(counted.served_bytes)


def record_counts(tx: Connection, pulls: Mapping[str, int], counted: Counted) -> None:
    """Add to the totals of the rules; `pulls` are counted by manifest."""
    totals: dict[str, Totals] = {}

    def add(rule_id: str, **more: int) -> None:
        found = totals.get(rule_id, Totals())
        summed = {name: getattr(found, name) + amount for name, amount in more.items()}
        totals[rule_id] = found._replace(**summed)

    for manifest_id, rule_id in rows.rules_of_manifests(tx, list(pulls)):
        add(rule_id, pulls=pulls[manifest_id])
    for repository_id, rule_id in rows.rules_of_repositories(tx, list(counted.served_bytes)):
        add(rule_id, served_bytes=counted.served_bytes[repository_id])
    for rule_id, misses in counted.misses.items():
        add(rule_id, misses=misses)
    for rule_id, size in counted.fetched_bytes.items():
        add(rule_id, fetched_bytes=size)
    # Sorted, so that two processes lock rows in the same order and never deadlock.
    for rule_id in sorted(totals):
        rows.add_totals(tx, rule_id, totals[rule_id])
