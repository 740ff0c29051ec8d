"""Restore what a backup has, as the data of a new cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudcore.databases.archive import BackupFailed
from cloudcore.databases.backup_rows import BACKUPS
from cloudcore.databases.cluster import Cluster
from cloudcore.databases.rows import CLUSTERS
from cloudcore.databases.server import ServerFailed, ServerSpec
from cloudcore.databases.states import spec_of, target_of

if TYPE_CHECKING:
    from cloudcore.databases.archive import BackupTarget
    from cloudcore.databases.needs import DatabaseNeeds

_MIB = 1024 * 1024


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
    await restore(needs, target, spec_of(found), backup.label, source.target_time)


async def restore(
    needs: DatabaseNeeds,
    target: BackupTarget,
    spec: ServerSpec,
    label: str,
    target_time: int | None,
) -> None:
    """Fill a server from a backup of `target`, and start it; what it had before is deleted."""
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
        await servers.start(spec, recovery=recovery)
