"""Restore backups as the data of new clusters, or into a temporary server to verify them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cloudcore.clock import MICROSECONDS
from cloudcore.databases.archive import wal
from cloudcore.databases.archive.driver import BackupFailed
from cloudcore.databases.backups import rows
from cloudcore.databases.backups.rows import BACKUPS
from cloudcore.databases.clusters.cluster import ARCHIVE_FAILING, Cluster
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.clusters.states import spec_of, target_of
from cloudcore.databases.servers.driver import ServerFailed, ServerSpec
from cloudcore.errors import Unavailable
from cloudcore.nodes.node import NODE_LOST
from cloudcore.nodes.watcher import try_lock
from cloudcore.resources.resource import DELETING
from cloudcore.wire import rfc3339

if TYPE_CHECKING:
    from cloudcore.databases.archive.driver import BackupTarget, Recovery
    from cloudcore.databases.backups.backup import Backup
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.databases.servers.bubblewrap import BubblewrapServers
    from cloudcore.databases.servers.driver import Proof
    from cloudcore.db.base import Connection

_MIB: Final = 1024 * 1024
TOO_EARLY: Final = "recovery ended before configured recovery target was reached"
"""PostgreSQL's error if no transaction in the WAL was committed after the target time."""
_ARCHIVING_SECONDS: Final = 420
"""After this time all WAL of a moment is in the bucket, or the cluster has the fault
`ARCHIVE_FAILING`: a minute until the server archives the WAL, five until a failure is a fault, and
one to spare."""
_LOOK_SECONDS: Final = 2
"""Between two checks that the owner still wants the cluster that is being restored."""


async def restore_while_wanted(needs: DatabaseNeeds, found: Cluster) -> bool:
    """Run `restore_cluster` for a new cluster; return True when it is done.

    Cancel it and return False if the owner stops or deletes the cluster meanwhile.
    """
    restoring = asyncio.create_task(
        restore_cluster(needs, found), name=f"restore into cluster {found.id}"
    )
    try:
        while not (await asyncio.wait([restoring], timeout=_LOOK_SECONDS))[0]:
            with suppress(Unavailable):
                if not await needs.database.read(_is_wanted, found):
                    return False
        await restoring
        return True
    finally:
        restoring.cancel()
        await asyncio.gather(restoring, return_exceptions=True)


def _is_wanted(tx: Connection, found: Cluster) -> bool:
    current = CLUSTERS.find(tx, found.account_id, found.id)
    return current is not None and current.status != DELETING and current.is_wanted


async def restore_cluster(needs: DatabaseNeeds, found: Cluster) -> None:
    """Restore the data of a new cluster from its backup.

    After a crash, the restoration starts over, as no client has connected to the cluster yet.

    Raise `BackupFailed` if the backup is gone or cannot be read; `ServerFailed` if the server does
    not recover, or the bucket does not have all the necessary WAL yet.
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
    is_all_archived = await _archive_until_now(needs, origin, found.created_at)
    moment = source.target_time
    await restore(needs, target, spec, backup.label, moment, is_all_archived=is_all_archived)


async def _archive_until_now(needs: DatabaseNeeds, origin: Cluster, since: int) -> bool:
    """Return True if no more WAL of `origin` from before `since` is expected in the bucket.

    A recovery ends at the first commit after the target time. If `origin` is active on this
    machine, make it commit a transaction and archive it now, and return False. Otherwise it may
    never commit again: no more WAL is expected if it was stopped here and has archived all, if its
    machine is lost, or after `_ARCHIVING_SECONDS` if archiving works.
    """
    if origin.node == needs.node.name and (servers := needs.servers) is not None:
        spec = spec_of(origin)
        if origin.status == "active":
            with suppress(ServerFailed):  # it has just ended; its WAL may be in the bucket
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


async def restore(
    needs: DatabaseNeeds,
    target: BackupTarget,
    spec: ServerSpec,
    label: str,
    target_time: int | None = None,
    *,
    is_all_archived: bool = False,
) -> None:
    """Replace the data of the server `spec` with a backup of `target`, and let the server recover.

    The server is locked meanwhile. With `is_all_archived`, the bucket already has all WAL until
    `target_time`, so do not wait for more.

    Raise `BackupFailed` if the backup or its WAL cannot be read, `ServerFailed` if the server does
    not recover.
    """
    servers, archive = _servers(needs), needs.archive
    async with servers.held(spec.id):
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
        try:
            await _recover(needs, servers, target, spec, recovery, waits=not is_all_archived)
        except BackupFailed:  # the bucket has failed: the server would wait for WAL forever
            await servers.stop(spec.id)
            raise


def _servers(needs: DatabaseNeeds) -> BubblewrapServers:
    if needs.servers is None:
        raise ServerFailed(
            "this machine runs no database servers; its operator sets database_driver"
        )
    return needs.servers


async def _recover(
    needs: DatabaseNeeds,
    servers: BubblewrapServers,
    target: BackupTarget,
    spec: ServerSpec,
    recovery: Recovery,
    *,
    waits: bool,
) -> None:
    """Let a restored server replay the archive's WAL until the moment in `recovery`.

    With `waits`, more WAL may still arrive in the bucket.
    """
    archive, paths, target_time = needs.archive, servers.paths(spec), recovery.target_time
    async with archive.serving_wal(target, paths.data, paths.spool, paths.user, waits=waits):
        try:
            await servers.recover(spec, recovery)
        except ServerFailed as failed:
            if target_time is None or TOO_EARLY not in str(failed):
                raise
            if waits:
                until = rfc3339(target_time)
                words = f"the bucket does not have all WAL until {until} yet: it is waited for"
                raise ServerFailed(words) from failed
            # Nothing was committed after the moment: replay all WAL to get the state then.
            await servers.recover(spec, recovery._replace(is_to_end=True))


_MEMORY_MB: Final = 512
_CPU_MILLIS: Final = 1000
_MORE_MB: Final = 1024
"""For WAL that the server writes while it recovers."""
_LOCK: Final = "databases/verification.lock"
"""The lock file that a process holds while it verifies a backup."""


async def prove(
    needs: DatabaseNeeds, cluster: Cluster, target: BackupTarget, found: Backup
) -> Proof | None:
    """Restore a backup into a temporary server and read all its data; return the kind of proof.

    Return None if another backup is being verified on this machine.

    Raise `BackupFailed` if the backup cannot be read, `ServerFailed` if no server starts from it or
    its data are damaged.
    """
    servers = _servers(needs)
    with try_lock(needs.node.folder / _LOCK) as is_ours:
        if not is_ours:
            return None
        for left in await needs.database.read(rows.verifying_on, needs.node.name):
            await servers.remove(left, at_once=True)
        # It listens only on a Unix socket. No cluster has this port, which selects its user.
        spec = _spec(cluster, found, needs.terms.last_port + 1)
        try:
            await restore(needs, target, spec, found.label)
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
