"""Watch the spools of this machine's servers, and push their WAL to the buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.clock import MICROSECONDS
from cloudcore.databases.archive.wal import has_files
from cloudcore.databases.clusters import rows, states
from cloudcore.databases.clusters.cluster import ARCHIVE_FAILING, Cluster
from cloudcore.errors import PlatformError

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.databases.servers.bubblewrap import BubblewrapServers

EVERY_SECONDS: Final = 2
_FAILING_SECONDS: Final = 300
"""A cluster gets a fault after its WAL could not be pushed for this long."""


class WalWatch:
    """Pushes WAL; adds a fault to a cluster whose WAL cannot be pushed for five minutes."""

    def __init__(self, needs: DatabaseNeeds, driver: BubblewrapServers) -> None:
        self._needs = needs
        self._driver = driver
        self._failing: dict[str, int] = {}
        """Since when pushes fail (microseconds since the epoch), by the id of the cluster."""

    async def turn(self) -> None:
        """Push the WAL in the spools of this machine, cluster by cluster."""
        needs = self._needs
        for each in await needs.database.read(rows.CLUSTERS_ON.all, needs.node.name):
            if each.bucket is None or each.version is None or each.port is None:
                continue
            spool = self._driver.paths(states.spec_of(each)).spool
            error = None
            if has_files(spool):
                try:
                    target = states.target_of(needs.keyring, each)
                    error = await needs.archive.push_wal(target, spool)
                except PlatformError as failed:  # of this cluster; go on with the others
                    error = failed.message
            await self._note(each, error)

    async def _note(self, found: Cluster, error: str | None) -> None:
        """Add the fault `ARCHIVE_FAILING` after five minutes of errors; remove it on success."""
        needs, now = self._needs, self._needs.clock()
        is_told = any(each.code == ARCHIVE_FAILING for each in found.faults)
        if error is None:
            self._failing.pop(found.id, None)
            is_changed = is_told
        else:
            since = self._failing.setdefault(found.id, now)
            is_changed = not is_told and now - since >= _FAILING_SECONDS * MICROSECONDS

        def seen(current: Cluster) -> Cluster:
            if error is None:
                return current.without_faults(ARCHIVE_FAILING)
            words = f"WAL cannot be put into the bucket; the server keeps it meanwhile: {error}"
            return current.with_fault(ARCHIVE_FAILING, words, now)

        if is_changed:
            await needs.database.write(
                states.observe, needs.events, found.account_id, found.id, seen, now
            )
