"""Restore what a backup has, as the data of a new cluster."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cloudcore.clock import MICROSECONDS
from cloudcore.databases import wal
from cloudcore.databases.archive import BackupFailed
from cloudcore.databases.backup_rows import BACKUPS
from cloudcore.databases.cluster import ARCHIVE_FAILING, Cluster
from cloudcore.databases.rows import CLUSTERS
from cloudcore.databases.server import ServerFailed, ServerSpec
from cloudcore.databases.states import spec_of, target_of
from cloudcore.nodes.placed import NODE_LOST
from cloudcore.wire import rfc3339

if TYPE_CHECKING:
    from cloudcore.databases.archive import BackupTarget
    from cloudcore.databases.needs import DatabaseNeeds

_MIB = 1024 * 1024
_TOO_EARLY = "recovery ended before configured recovery target was reached"
"""What PostgreSQL says when no transaction in its WAL was committed after the moment."""
_NO_WAL = (
    "the bucket has no WAL of that moment, which its server has not archived: delete this cluster,"
    " and restore to an earlier moment, or the newest backup"
)


async def restore_cluster(needs: DatabaseNeeds, found: Cluster) -> None:
    """Make the data of a new cluster from the backup that it names.

    After a death it begins anew: nobody has connected to the cluster before.

    Raises:
        BackupFailed: the backup is gone, or cannot be read; or the bucket has no WAL of the moment.
        ServerFailed: the server does not recover.

    """
    source = found.source
    assert source is not None
    read = needs.database.read
    origin = await read(CLUSTERS.find, found.account_id, source.cluster_id)
    backup = await read(BACKUPS.find, found.account_id, source.backup_id or "")
    if origin is None or backup is None or not backup.label:
        raise BackupFailed(f"the backup of {source.cluster_name} is gone; delete this cluster")
    target, spec = target_of(needs.keyring, origin), spec_of(found)
    if source.target_time is None:
        await restore(needs, target, spec, backup.label)
        return
    await _archive_until_now(needs, origin)
    try:
        await restore(needs, target, spec, backup.label, source.target_time)
    except ServerFailed as failed:
        if _TOO_EARLY not in str(failed):
            raise
        if not await _is_all_archived(needs, origin):
            raise BackupFailed(_NO_WAL) from failed
        # It has committed nothing after the moment: the end of its WAL is what it had then.
        await restore(needs, target, spec, backup.label, source.target_time, is_to_end=True)


async def _archive_until_now(needs: DatabaseNeeds, origin: Cluster) -> None:
    """Let a server that runs here archive WAL now: else that comes within a minute of a change."""
    if needs.servers is not None and origin.node == needs.node.name and origin.status == "active":
        with suppress(ServerFailed):  # it has just ended, and its WAL may be there all the same
            await needs.servers.switch_wal(spec_of(origin))


async def _is_all_archived(needs: DatabaseNeeds, origin: Cluster) -> bool:
    """Return True if a server was stopped in an orderly way: then it archives all that it has."""
    found = await needs.database.read(CLUSTERS.find, origin.account_id, origin.id)
    is_failing = found is None or any(each.code == ARCHIVE_FAILING for each in found.faults)
    return not is_failing and found is not None and found.status == "stopped"


async def restore(
    needs: DatabaseNeeds,
    target: BackupTarget,
    spec: ServerSpec,
    label: str,
    target_time: int | None = None,
    *,
    is_to_end: bool = False,
) -> None:
    """Replace the data of a server by a backup of `target`, and let it recover."""
    servers, archive = needs.servers, needs.archive
    if servers is None:
        raise ServerFailed(
            "this machine runs no database servers; its operator sets database_driver"
        )
    await servers.remove(spec.id, at_once=True)
    folder, paths = servers.restoring(spec), servers.paths(spec)
    most = spec.disk_mb * _MIB
    recovery = await archive.restore(
        target, folder, paths.user, label=label, target_time=target_time, max_bytes=most
    )
    await servers.adopt_restored(spec)
    if not recovery.uses_archive:
        await servers.recover(spec, recovery)
        return
    async with archive.serving_wal(target, paths.data, paths.spool, paths.user):
        await servers.recover(spec, recovery._replace(is_to_end=is_to_end))
