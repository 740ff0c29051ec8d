"""Request, verify and delete backups, each in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import structs

from cloudcore.account_rows import lock_account
from cloudcore.databases.archive.driver import BackupKind
from cloudcore.databases.backups import rows
from cloudcore.databases.backups.backup import Backup
from cloudcore.databases.backups.rows import BACKUPS, dependents
from cloudcore.databases.backups.workflow import BACKUP_WORK, delete_all
from cloudcore.databases.clusters.cluster import SERVERS_CAPABILITY, Cluster
from cloudcore.databases.clusters.rows import CLUSTERS, restores_of
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from cloudcore.nodes.node import NODE_LOST
from cloudcore.nodes.rows import can_run
from cloudcore.resources.resource import DELETING, Reference

Trigger = Literal["manual", "schedule"]
_VERIFIABLE: Final = ("never", "succeeded", "failed")


def find(tx: Connection, cluster: Cluster, backup_id: str) -> Backup:
    """Return a backup of a cluster, or raise `NotFound`."""
    found = BACKUPS.find(tx, cluster.account_id, backup_id)
    if found is None or found.cluster.id != cluster.id:
        raise NotFound("there is no such backup")
    return found


def request(
    tx: Connection,
    seen: Cluster,
    kind: BackupKind,
    trigger: Trigger,
    new_id: Callable[[], str],
    now: int,
) -> Backup:
    """Insert a pending backup, which is made after the cluster's earlier backups.

    Raises:
        NotFound: the cluster is gone.
        Conflict: the cluster cannot be backed up now, or has no base for an incremental backup.
        QuotaExceeded: the account has reached its quota.

    """
    lock_account(tx, seen.account_id)
    cluster = CLUSTERS.lock(tx, seen.account_id, seen.id)
    check_can_back_up(cluster)
    base_id = None
    if kind == "incremental":
        base = rows.newest_base(tx, cluster.account_id, cluster.id)
        if base is None:
            words = "an incremental backup needs a base backup that succeeded; make one first"
            raise Conflict(words, reason="no_base")
        base_id = base.id
    use = BACKUPS.check_room(tx, cluster.account_id, cluster.region)
    new = Backup(
        id=new_id(),
        account_id=cluster.account_id,
        region=cluster.region,
        created_at=now,
        updated_at=now,
        cluster=Reference(cluster.id, cluster.name),
        node=cluster.node,
        kind=kind,
        trigger=trigger,
        status="pending",
        base_id=base_id,
        faults=tuple(each for each in cluster.faults if each.code == NODE_LOST),
    )
    BACKUPS.add(tx, new)
    BACKUPS.counted.emit_level(tx, cluster.account_id, use, now)
    BACKUP_WORK.wake(tx, new, now)
    return new


def check_can_back_up(cluster: Cluster) -> None:
    """Raise `Conflict` if a cluster cannot be backed up in its present state."""
    if cluster.bucket is None:
        words = "the cluster has no bucket for backups; one is named when a cluster is created"
        raise Conflict(words, reason="no_bucket")
    if cluster.status in (DELETING, "stopped", "provisioning") or cluster.version is None:
        words = f"the cluster is {cluster.status}; it is backed up while it runs"
        raise Conflict(words, reason="not_running", status=cluster.status)


def verify(tx: Connection, seen: Backup, now: int) -> Backup:
    """Begin the verification of a backup, unless one has already begun; return the backup.

    Raise `NotFound` if the backup is gone, `Conflict` if it has not succeeded or its machine runs
    no servers.
    """
    BACKUP_WORK.wake(tx, seen, now)  # first: steps, too, lock the job before the record
    found = BACKUPS.lock(tx, seen.account_id, seen.id)
    check_succeeded(found)
    if not can_run(tx, found.node, SERVERS_CAPABILITY):
        words = f"the machine {found.node} runs no database servers: the operator sets"
        raise Conflict(f"{words} database_driver", reason="no_servers", setting="database_driver")
    if found.verification not in _VERIFIABLE:
        return found
    return BACKUPS.save(tx, structs.replace(found, verification="pending", updated_at=now))


def check_succeeded(found: Backup) -> None:
    """Raise `Conflict` unless a backup has succeeded; only such a backup can be restored."""
    if found.status != "succeeded":
        words = f"the backup is {found.status}; only one that succeeded can be restored"
        raise Conflict(words, reason="not_succeeded", status=found.status)


def delete(tx: Connection, seen: Backup, now: int, *, is_cascade: bool) -> None:
    """Begin the deletion of a backup; one that is being made is deleted when its run has ended.

    With `is_cascade`, the incremental backups that need it are deleted too. Raise `NotFound` if the
    backup is gone; `Conflict` if incremental backups need it and `is_cascade` is False, or a
    cluster is being restored from one of these backups.
    """
    CLUSTERS.lock(tx, seen.account_id, seen.cluster.id)  # no incremental one begins meanwhile
    found = BACKUPS.find(tx, seen.account_id, seen.id)
    if found is None:
        raise BACKUPS.missing()
    needed_by = dependents(tx, found)
    if needed_by and not is_cascade:
        words = f"{len(needed_by)} incremental backups need it, such as {needed_by[0].id}"
        raise Conflict(
            f"{words}; delete them first, or say cascade=true",
            reason="is_needed",
            backup=needed_by[0].id,
        )
    restoring = restores_of(tx, found.account_id, found.cluster.id)
    for each in (*needed_by, found):
        if user := restoring.get(each.id):
            words = f"the cluster {user} is being restored from the backup {each.id}"
            raise Conflict(words, reason="is_being_restored", cluster=user)
    delete_all(tx, (*needed_by, found), now)
