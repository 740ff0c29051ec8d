"""Request a new cluster with the data of a backup, or of a cluster at a point in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from msgspec import structs

from cloudcore.databases.backups import backups, rows
from cloudcore.databases.backups.backup import Backup
from cloudcore.databases.clusters import clusters
from cloudcore.databases.clusters.bodies import GivenSize
from cloudcore.databases.clusters.cluster import Cluster
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, invalid_field
from cloudcore.resource_references import RightTo
from cloudcore.wire import rfc3339

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseTerms

_MIB = 1024 * 1024
_SPARE = 2
"""Without a size in the request, a cluster restored from a registered one gets this many times the
disk that the backup's files take."""


def create(
    tx: Connection, new: Cluster, size: GivenSize | None, terms: DatabaseTerms, right_to: RightTo
) -> Cluster:
    """Insert a cluster to be restored from its source: another cluster's backup or point in time.

    If `size` is None, the cluster is as large as the source. A registered source has no size: then
    the cluster has the default size, with a disk that fits the backup's files.

    Raises:
        NotFound: the source or the backup is gone.
        InvalidInput: the disk of the new cluster is smaller than the data.
        Conflict: the backup has not succeeded, or none was complete at the point in time; or as for
            any new cluster.

    """
    source = new.source
    assert source is not None
    origin = CLUSTERS.hold(tx, new.account_id, source.cluster_id)  # so that its backups stay
    if origin is None:
        raise CLUSTERS.missing()
    if source.backup_id is not None:
        backup = backups.find(tx, origin, source.backup_id)
        backups.check_succeeded(backup)
    else:
        assert source.target_time is not None
        backup = _whole_at(tx, origin, source.target_time, new.created_at)
    size = size or _size_like(origin, backup)
    if (backup.size_bytes or 0) > size.disk_mb * _MIB:
        least = -(-(backup.size_bytes or 0) // _MIB)
        words = f"at least {least}, which the files of the backup have"
        raise invalid_field("size.disk_mb", words, "out_of_range")
    source = structs.replace(source, backup_id=backup.id)
    new = structs.replace(new, version=origin.version, source=source, **structs.asdict(size))
    return clusters.create(tx, new, terms, right_to)


def _whole_at(tx: Connection, origin: Cluster, target_time: int, now: int) -> Backup:
    """Return the newest backup that was complete at a time.

    Raise `Conflict` if none was, the time is after `now`, or the cluster is registered.
    """
    if origin.type == "registered":
        _refuse("a cluster that runs elsewhere is restored from a backup, not to a moment")
    found = rows.succeeded(tx, origin.account_id, origin.id)
    if not found:
        _refuse("the cluster has no backup that succeeded")
    ends = [(each.completed_at or now, each) for each in found]
    first = ends[0][0]
    if not first <= target_time <= now:
        window = {"earliest": rfc3339(first), "latest": rfc3339(now)}
        _refuse(f"target_time lies between {window['earliest']} and {window['latest']}", **window)
    return [each for end, each in ends if end <= target_time][-1]


def _size_like(origin: Cluster, backup: Backup) -> GivenSize:
    """Return the size of the cluster that was backed up, or one that fits the backup's files."""
    if origin.type == "managed":
        return GivenSize(
            memory_mb=origin.memory_mb, cpu_millis=origin.cpu_millis, disk_mb=origin.disk_mb
        )
    wanted = _SPARE * (backup.size_bytes or 0) // _MIB
    return GivenSize(disk_mb=max(GivenSize().disk_mb, wanted))


def _refuse(words: str, **more: str) -> NoReturn:
    raise Conflict(words, reason="out_of_window", **more)
