"""Verify that a backup can be restored: into a server of its own, all of whose data are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.databases import backup_rows, restoring
from cloudcore.databases.server import ServerFailed, ServerSpec
from cloudcore.nodes.file_locks import try_lock

if TYPE_CHECKING:
    from cloudcore.databases.archive import BackupTarget
    from cloudcore.databases.backup import Backup
    from cloudcore.databases.cluster import Cluster
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.databases.server import Proof

_MIB: Final = 1024 * 1024
_MEMORY_MB: Final = 512
_CPU_MILLIS: Final = 1000
_MORE_MB: Final = 1024
"""For WAL that the server writes while it recovers."""
_LOCK: Final = "databases/verification.lock"
"""Held by the process of a machine that verifies a backup."""


async def prove(
    needs: DatabaseNeeds, cluster: Cluster, target: BackupTarget, found: Backup
) -> Proof | None:
    """Restore a backup into a server of its own, read all of it, and return how.

    Return None if another one is being proved on this machine.

    Raises:
        BackupFailed: it cannot be read.
        ServerFailed: the server does not start from it, or what it has is damaged.

    """
    if (servers := needs.servers) is None:
        raise ServerFailed(
            "this machine runs no database servers; its operator sets database_driver"
        )
    with try_lock(needs.node.folder / _LOCK) as is_ours:
        if not is_ours:
            return None
        for left in await needs.database.read(backup_rows.verifying_on, needs.node.name):
            await servers.remove(left, at_once=True)
        # It listens on a Unix socket alone; that and its user are of a port that no cluster has.
        spec = _spec(cluster, found, needs.terms.last_port + 1)
        try:
            await restoring.restore(needs, target, spec, found.label)
            return await servers.check_data(spec)
        finally:
            await servers.remove(spec.id, at_once=True)


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
