"""Restore what a backup has, as the data of a new cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
_ENDED_EARLY: Final = "recovery ended before configured recovery target was reached"
"""What a server says whose WAL has no commit after the moment at which it is to stop."""
_ARCHIVING_SECONDS: Final = 420
"""After which all WAL of a moment is in the bucket, or `ARCHIVE_FAILING` stands on its cluster: a
minute until a server gives it away, five until a failure is a fault, and one to spare."""


async def restore_cluster(needs: DatabaseNeeds, found: Cluster) -> None:
    """Make the data of a new cluster from the backup that it names, and start its server once.

    A death in between begins again from nothing: nobody has connected to it before.

    Raises:
        BackupFailed: there is nothing to restore from, or it cannot be read.
        ServerFailed: it cannot be run.

    """
    source = found.source
    assert source is not None
    read = needs.database.read
    origin = await read(CLUSTERS.find, found.account_id, source.cluster_id)
    backup = await read(BACKUPS.find, found.account_id, source.backup_id or "")
    if origin is None or backup is None or not backup.label:
        raise BackupFailed(f"the backup of {source.cluster_name} is gone; delete this cluster")
    target = target_of(needs.keyring, origin)
    is_all_there = False
    if source.target_time is not None:
        is_all_there = await _is_all_archived(needs, origin, found.created_at)
    await restore(
        needs,
        target,
        spec_of(found),
        backup.label,
        source.target_time,
        is_all_archived=is_all_there,
    )


async def restore(
    needs: DatabaseNeeds,
    target: BackupTarget,
    spec: ServerSpec,
    label: str,
    target_time: int | None,
    *,
    is_all_archived: bool = False,
) -> None:
    """Fill a server from a backup of `target`, and start it; what it had before is deleted.

    With `is_all_archived`, the bucket will get no more WAL of the time until `target_time`: a
    server that finds nothing later has come to it.
    """
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
    issued = await needs.authority.issue([needs.terms.address, needs.node.name])
    await servers.reload_certificate(spec, issued.chain_pem, issued.key_pem)
    if not recovery.uses_archive:
        await servers.start(spec, recovery=recovery)
        return
    async with archive.serving_wal(target, paths.data, paths.spool, paths.user):
        try:
            await servers.start(spec, recovery=recovery)
        except ServerFailed as failed:
            if target_time is None or _ENDED_EARLY not in str(failed):
                raise
            if not is_all_archived:
                until = rfc3339(target_time)
                words = f"the bucket does not have all WAL until {until} yet: it is waited for"
                raise ServerFailed(words) from None
            await servers.start(spec, recovery=recovery._replace(to_end=True))


async def _is_all_archived(needs: DatabaseNeeds, origin: Cluster, since: int) -> bool:
    """Return True if the bucket gets no more WAL of the time before `since`.

    A server ends its recovery where it reads a commit of later than the moment. One that runs on
    this machine writes such a one now, and it comes; of another one there may never be one.
    """
    if origin.node == needs.node.name and (servers := needs.servers) is not None:
        spec = spec_of(origin)
        if origin.status == "active":
            await servers.switch_wal(spec)
            return False
        paths = servers.paths(spec)
        if origin.status == "stopped" and wal.has_all_of(paths.data, paths.spool):
            return True
    codes = {each.code for each in origin.faults}
    if NODE_LOST in codes:
        return True
    is_late = needs.clock() - since > _ARCHIVING_SECONDS * MICROSECONDS
    return is_late and ARCHIVE_FAILING not in codes
