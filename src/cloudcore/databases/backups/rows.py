"""Tables and queries of backups, their dependencies, and backups beyond the retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from cloudcore.databases.backups.backup import BACKUP, Backup
from cloudcore.databases.clusters.cluster import Cluster
from cloudcore.databases.clusters.rows import CLUSTERS, restores_of
from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, count, given, insert_new, insert_or_change
from cloudcore.db.schema import Id, Moment, one_of, partial_index
from cloudcore.db.statement import Statement, paged
from cloudcore.db.tables import columns, indexes, table
from cloudcore.resources.resource import DELETING
from cloudcore.resources.rows import Rows

BACKUPS: Final = Rows(
    BACKUP,
    one_of("kind", "base", "incremental"),
    one_of("trigger", "manual", "schedule"),
    one_of("status", "pending", "running", "succeeded", "failed", "deleting"),
    one_of("verification", "never", "pending", "running", "succeeded", "failed"),
    sa.CheckConstraint("progress BETWEEN 0 AND 100", name="progress"),
    # A base keeps its row while incremental backups refer to it.
    sa.CheckConstraint("kind = 'incremental' OR base_id IS NULL", name="base_id"),
    sa.ForeignKeyConstraint(
        ["base_id", "account_id"],
        ["database_backups.id", "database_backups.account_id"],
        name="fk_database_backups_base",
    ),
    sa.Index("ix_database_backups_base_id", "base_id"),
    partial_index(
        "ix_database_backups_verifying", "node", where=sa.text("verification = 'running'")
    ),
    # In place of the default index, which is by the key: here that is the id.
    unique=sa.Index("ix_database_backups_cluster_id_id", "cluster_id", "id"),
    types={"base_id": Id},
    references={"cluster": CLUSTERS},
)

# The backup that may change the bucket of a cluster: one at a time.
backup_turns = table(
    "backup_turns",
    columns(Id, "cluster_id KEY, account_id, backup_id"),
    sa.ForeignKeyConstraint(
        ["backup_id", "account_id"],
        ["database_backups.id", "database_backups.account_id"],
        name="fk_backup_turns_backup",
    ),
    indexes("backup_id"),
)

# When a cluster's schedule is due next; a cluster without one has no row.
backup_schedules = table(
    "backup_schedules",
    columns(Id, "cluster_id KEY, account_id"),
    columns(Moment, "due_at"),
    sa.ForeignKeyConstraint(
        ["cluster_id", "account_id"],
        ["database_clusters.id", "database_clusters.account_id"],
        name="fk_backup_schedules_cluster",
        ondelete="CASCADE",
    ),
    indexes("due_at"),
)

_b, _t, _s = BACKUPS.table.c, backup_turns.c, backup_schedules.c
_OF_CLUSTER: Final = given(_b.account_id, _b.cluster_id)
_IS_OF_KIND: Final = (sa.bindparam("kind") == sa.text("''")) | given(_b.kind)
_HAS_FILES: Final = _b.status == sa.text("'succeeded'")

_LIST: Final = paged(
    BACKUPS.columns.where(_OF_CLUSTER, _IS_OF_KIND, _b.id > sa.bindparam("after")).order_by(_b.id)
)
_COUNT: Final = Statement(
    sa.select(sa.func.count()).select_from(BACKUPS.table).where(_OF_CLUSTER, _IS_OF_KIND)
)
_SUCCEEDED: Final = Statement(
    BACKUPS.columns.where(_OF_CLUSTER, _HAS_FILES).order_by(_b.completed_at, _b.id)
)
_KEPT: Final = Statement(
    BACKUPS.columns.where(
        _OF_CLUSTER, sa.text("database_backups.status IN ('pending', 'running', 'succeeded')")
    ).order_by(_b.id)
)
_BEFORE: Final = Statement(
    sa.select(_b.id)
    .where(_OF_CLUSTER, _b.status == sa.text("'pending'"), _b.id < sa.bindparam("before"))
    .limit(ONE)
    .offset(ZERO)
)
_WAITING: Final = Statement(
    BACKUPS.columns.where(
        _OF_CLUSTER,
        (_b.verification == sa.text("'pending'"))
        | sa.text("database_backups.status IN ('pending', 'deleting')"),
    ).order_by(_b.id)
)
_NEEDING: Final = Statement(BACKUPS.columns.where(given(_b.account_id, _b.base_id)).order_by(_b.id))
_REMAINING: Final = paged(BACKUPS.columns.where(_OF_CLUSTER).order_by(_b.id.desc()))
_OF_LABEL: Final = Statement(sa.select(_b.id).where(_OF_CLUSTER, given(_b.label)).order_by(_b.id))
_VERIFYING: Final = Statement(
    sa.select(_b.id).where(given(_b.node), _b.verification == sa.text("'running'")).order_by(_b.id)
)
_SET_PROGRESS: Final = Statement(
    BACKUPS.table.update()
    .where(given(_b.account_id), _b.id == sa.bindparam("of_id"), _b.status == sa.text("'running'"))
    .values(progress=sa.bindparam("progress"), updated_at=sa.bindparam("now"))
)
_TAKE: Final = Statement(insert_new(backup_turns, _t.keys()))
_HOLDER: Final = Statement(sa.select(_t.backup_id).where(given(_t.cluster_id)))
_RELEASE: Final = Statement(backup_turns.delete().where(given(_t.backup_id, _t.account_id)))
_STORED: Final = Statement(
    sa.select(_b.account_id, sa.func.sum(_b.stored_bytes))
    .where(_b.stored_bytes.is_not(None))
    .group_by(_b.account_id)
)
_PUT_DUE: Final = Statement(insert_or_change(backup_schedules, _s.keys()))
_MOVE_DUE: Final = Statement(
    backup_schedules.update()
    .where(_s.cluster_id == sa.bindparam("of_id"), _s.due_at == sa.bindparam("was"))
    .values(due_at=sa.bindparam("due_at"))
)
_FORGET_DUE: Final = Statement(backup_schedules.delete().where(given(_s.cluster_id)))
_DUE: Final = paged(
    sa.select(_s.account_id, _s.cluster_id, _s.due_at)
    .where(_s.due_at <= sa.bindparam("now"), _s.cluster_id > sa.bindparam("after"))
    .order_by(_s.cluster_id)
)


def list_backups(
    tx: Connection, account_id: str, cluster_id: str, kind: str, after: str, limit: int
) -> Sequence[Backup]:
    """Return a page of the backups of a cluster, oldest first; an empty kind means all."""
    of = {"account_id": account_id, "cluster_id": cluster_id, "kind": kind}
    return BACKUPS.read_all(tx, _LIST, **of, after=after, limit=limit)


def count_backups(tx: Connection, account_id: str, cluster_id: str, kind: str) -> int:
    """Count the backups that `list_backups` returns on all its pages."""
    return count(tx, _COUNT, account_id=account_id, cluster_id=cluster_id, kind=kind)


def succeeded(tx: Connection, account_id: str, cluster_id: str) -> Sequence[Backup]:
    """Return the backups of a cluster that succeeded, in the order in which they ended."""
    return _found(tx, _SUCCEEDED, account_id, cluster_id)


def kept(tx: Connection, account_id: str, cluster_id: str) -> Sequence[Backup]:
    """Return a cluster's pending, running and succeeded backups, oldest first."""
    return _found(tx, _KEPT, account_id, cluster_id)


def waiting(tx: Connection, account_id: str, cluster_id: str) -> Sequence[Backup]:
    """Return a cluster's backups to make, to delete or to verify, oldest first."""
    return _found(tx, _WAITING, account_id, cluster_id)


def newest_base(tx: Connection, account_id: str, cluster_id: str) -> Backup | None:
    """Return the base backup of a cluster that succeeded last, or None."""
    bases = [each for each in succeeded(tx, account_id, cluster_id) if each.kind == "base"]
    return bases[-1] if bases else None


def needing(tx: Connection, base: Backup) -> Sequence[Backup]:
    """Return the incremental backups of a base, in the order in which they were requested."""
    return BACKUPS.read_all(tx, _NEEDING, account_id=base.account_id, base_id=base.id)


def remaining(tx: Connection, account_id: str, cluster_id: str, limit: int) -> Sequence[Backup]:
    """Return up to `limit` backups of a cluster with any status, newest first."""
    of = {"account_id": account_id, "cluster_id": cluster_id}
    return BACKUPS.read_all(tx, _REMAINING, **of, limit=limit)


def id_of_label(tx: Connection, account_id: str, cluster_id: str, label: str) -> str | None:
    """Return the id of the backup with a label, or None."""
    row = tx.row(_OF_LABEL, account_id=account_id, cluster_id=cluster_id, label=label)
    return None if row is None else row[0]


def verifying_on(tx: Connection, node: str) -> Sequence[str]:
    """Return the ids of backups whose verification a machine has begun and not yet ended."""
    return [row[0] for row in tx.rows(_VERIFYING, node=node)]


def set_progress(tx: Connection, found: Backup, progress: int, now: int) -> None:
    """Store the progress of a backup in percent, if it is running."""
    of = {"account_id": found.account_id, "of_id": found.id}
    tx.execute(_SET_PROGRESS, **of, progress=progress, now=now)


def take_lock(tx: Connection, found: Backup) -> bool:
    """Take a cluster's lock for a backup; return False if another one holds it or comes first.

    Pending backups get the lock in the order in which they were requested.
    """
    of = {"account_id": found.account_id, "cluster_id": found.cluster.id}
    if found.status == "pending" and tx.row(_BEFORE, **of, before=found.id) is not None:
        return False
    if tx.execute(_TAKE, **of, backup_id=found.id) == 1:
        return True
    holder = tx.row(_HOLDER, cluster_id=found.cluster.id)
    return holder is not None and holder[0] == found.id


def release_lock(tx: Connection, found: Backup) -> None:
    """Release the lock of a cluster, if this backup holds it."""
    tx.execute(_RELEASE, backup_id=found.id, account_id=found.account_id)


def stored_bytes(tx: Connection) -> Mapping[str, int]:
    """Map account id to the bytes that its backups have added to buckets."""
    return {account_id: int(found) for account_id, found in tx.rows(_STORED)}


def put_due(tx: Connection, account_id: str, cluster_id: str, due_at: int | None) -> None:
    """Store the next due time of a cluster's schedule; None deletes it."""
    if due_at is None:
        tx.execute(_FORGET_DUE, cluster_id=cluster_id)
    else:
        tx.execute(_PUT_DUE, account_id=account_id, cluster_id=cluster_id, due_at=due_at)


def move_due(tx: Connection, cluster_id: str, was: int, due_at: int | None) -> bool:
    """Replace the due time `was` of a schedule; return False if it is not `was` any more.

    If `due_at` is None, delete the due time.
    """
    if due_at is None:
        return tx.execute(_FORGET_DUE, cluster_id=cluster_id) == 1
    return tx.execute(_MOVE_DUE, of_id=cluster_id, was=was, due_at=due_at) == 1


def due(tx: Connection, now: int, after: str, limit: int) -> Sequence[tuple[str, str, int]]:
    """Return (account id, cluster id, due time) of schedules due at `now`, after the id `after`."""
    return [(a, b, c) for a, b, c in tx.rows(_DUE, now=now, after=after, limit=limit)]


def _found(
    tx: Connection, statement: Statement, account_id: str, cluster_id: str
) -> Sequence[Backup]:
    return BACKUPS.read_all(tx, statement, account_id=account_id, cluster_id=cluster_id)


def dependents(tx: Connection, found: Backup) -> Sequence[Backup]:
    """Return the backups that cannot be restored without this one, except those being deleted.

    An incremental backup has only the changes since the previous backup, so it needs every backup
    back to its base.
    """
    base: Backup | None = found
    if found.kind == "incremental":
        if found.base_id is None or found.completed_at is None:
            return ()
        base = BACKUPS.find(tx, found.account_id, found.base_id)
    if base is None:
        return ()
    since = found.completed_at or 0
    return [
        each
        for each in needing(tx, base)
        if each.status != DELETING
        and each.id != found.id
        and (each.completed_at is None or each.completed_at >= since)
    ]


def beyond_retention(tx: Connection, cluster: Cluster) -> Sequence[Backup]:
    """Return the base backups beyond the retention, oldest first, each preceded by its dependents.

    A base is left out with its dependents while a cluster is being restored from one of them.
    """
    if cluster.retention is None:
        return ()
    found = succeeded(tx, cluster.account_id, cluster.id)
    restoring = restores_of(tx, cluster.account_id, cluster.id)
    bases = [each for each in found if each.kind == "base"]
    gone: list[Backup] = []
    for base in bases[: -cluster.retention.base_count]:
        with_it = [*dependents(tx, base), base]
        if not any(each.id in restoring for each in with_it):
            gone += with_it
    return gone
