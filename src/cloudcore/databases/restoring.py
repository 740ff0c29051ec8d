"""Restore a backup: as the data of a new cluster, or to verify that it can be restored."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cloudcore.databases import backup_rows, rows
from cloudcore.databases.archive import BackupFailed
from cloudcore.databases.backup import Backup
from cloudcore.databases.backup_rows import BACKUPS
from cloudcore.databases.cluster import Cluster
from cloudcore.databases.rows import CLUSTERS
from cloudcore.databases.server import ServerFailed, ServerSpec
from cloudcore.databases.states import spec_of, target_of

if TYPE_CHECKING:
    from cloudcore.databases.archive import BackupTarget
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.db.base import Connection

_MIB: Final = 1024 * 1024
_MEMORY_MB: Final = 512
_CPU_MILLIS: Final = 1000
_MORE_MB: Final = 1024
"""For WAL that the server writes while it recovers."""
_LOCK: Final = "verification.lock"
_OFF: Final = "this machine runs no database servers; its operator sets database_driver"


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
        raise ServerFailed(_OFF)
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


async def verify(
    needs: DatabaseNeeds, cluster: Cluster, target: BackupTarget, found: Backup
) -> bool:
    """Restore a backup into a server of its own, and check every page.

    Return False if another one is being verified on this machine.

    Raises:
        BackupFailed: it cannot be read.
        ServerFailed: the server does not start from it, or a checksum is wrong.

    """
    if (servers := needs.servers) is None:
        raise ServerFailed(_OFF)
    with _alone(needs) as is_alone:
        if not is_alone:
            return False
        for left in await needs.database.read(backup_rows.verifying_on, needs.node.name):
            await servers.remove(left, at_once=True)
        port = await needs.database.read(_port, needs)
        spec = _spec(cluster, found, port)
        try:
            await restore(needs, target, spec, found.label, None)
            await servers.stop(spec.id)
            await servers.check_pages(spec)
        finally:
            await servers.remove(spec.id, at_once=True)
        return True


def _spec(cluster: Cluster, found: Backup, port: int) -> ServerSpec:
    assert cluster.version is not None
    return ServerSpec(
        id=found.id,
        version=cluster.version,
        memory_mb=max(cluster.memory_mb, _MEMORY_MB),
        cpu_millis=max(cluster.cpu_millis, _CPU_MILLIS),
        disk_mb=2 * (found.size_bytes or 0) // _MIB + _MORE_MB,
        port=port,
    )


def _port(tx: Connection, needs: DatabaseNeeds) -> int:
    """Return the highest port that no cluster of this machine has; new ones get the lowest."""
    first, last = needs.terms.first_port, needs.terms.last_port
    taken = rows.ports_on(tx, needs.node.name)
    port = next((each for each in range(last, first - 1, -1) if each not in taken), None)
    if port is None:
        raise ServerFailed("the machine has no port left: the operator sets database_ports")
    return port


@contextmanager
def _alone(needs: DatabaseNeeds) -> Iterator[bool]:
    """Yield True if no other process of this machine verifies a backup meanwhile."""
    folder = needs.node.folder / "databases"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(opened)
