"""Prove that a backup can be restored: in a server of its own, of which all data are read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cloudcore.databases import backup_rows, restoring, rows
from cloudcore.databases.server import ServerFailed, ServerSpec

if TYPE_CHECKING:
    from cloudcore.databases.archive import BackupTarget
    from cloudcore.databases.backup import Backup
    from cloudcore.databases.cluster import Cluster
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.databases.server import Proof
    from cloudcore.db.base import Connection

_MIB: Final = 1024 * 1024
_MEMORY_MB: Final = 512
_CPU_MILLIS: Final = 1000
_MORE_MB: Final = 1024
"""For WAL that the server writes while it recovers."""
_LOCK: Final = "verification.lock"


async def prove(
    needs: DatabaseNeeds, cluster: Cluster, target: BackupTarget, found: Backup
) -> Proof | None:
    """Restore a backup into a server that nobody knows, read all of it, and return how.

    Return None if another one is being proved on this machine.

    Raises:
        BackupFailed: it cannot be read.
        ServerFailed: the server does not start from it, or what it has is damaged.

    """
    if (servers := needs.servers) is None:
        raise ServerFailed(
            "this machine runs no database servers; its operator sets database_driver"
        )
    with _alone(needs) as is_alone:
        if not is_alone:
            return None
        for left in await needs.database.read(backup_rows.verifying_on, needs.node.name):
            await servers.remove(left, at_once=True)
        port = await needs.database.read(_port, needs)
        spec = _spec(cluster, found, port)
        try:
            await restoring.restore(needs, target, spec, found.label, None)
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
    """Yield True if no other process of this machine proves a backup meanwhile."""
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
