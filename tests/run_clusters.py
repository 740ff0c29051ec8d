"""A database cluster with backups in the database of a served install that runs none itself."""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple

from cloudcore.clock import MICROSECONDS, system_clock, uuid7

_DAY: Final = 86_400 * MICROSECONDS
_OF_ANOTHER: Final[dict[str, Any]] = {
    "name": "run-elsewhere",
    "type": "managed",
    "status": "active",
    "version": 15,
    "node": "another-machine",
    "endpoint": None,
    "secret": None,
    "check_at": None,
    "faults": "[]",
    "memory_mb": 512,
    "cpu_millis": 500,
    "disk_mb": 10_240,
    "port": 20_000,
    "host": "192.0.2.5",
    "ca": "-----BEGIN CERTIFICATE-----\n",
    "has_data": 1,
}
_FAULT: Final = (
    '[{"code": "BACKUP_FAILED", "message": "the bucket is full", "first_at": 1, "last_at": 1,'
    ' "occurrences": 1}]'
)


class RunCluster(NamedTuple):
    """Its id, and those of its backups."""

    id: str
    base: str
    incremental: str
    failed: str


def run_cluster(database: sqlite3.Connection, registered_id: str) -> RunCluster:
    """Insert a cluster that another machine runs, with the account, bucket and schedule of one.

    It has a base backup that was proved, an incremental one, and one that failed.
    """
    database.row_factory = sqlite3.Row
    row = database.execute("SELECT * FROM database_clusters WHERE id = ?", (registered_id,))
    now = system_clock()
    found = RunCluster(*(uuid7(now - age * _DAY) for age in (4, 3, 2, 1)))
    _insert(database, "database_clusters", {**dict(row.fetchone()), **_OF_ANOTHER, "id": found.id})
    proved = {"verification": "succeeded", "verified_at": now - _DAY, "verified_by": "checksums"}
    changes: tuple[dict[str, Any], ...] = (
        {"id": found.base, **proved},
        {"id": found.incremental, "kind": "incremental", "base_id": found.base},
        {"id": found.failed, "status": "failed", "completed_at": None, "faults": _FAULT},
    )
    for age, change in zip((3, 2, 1), changes, strict=True):
        at = now - age * _DAY
        backup = {
            **_backup(found.id, at),
            **dict(database.execute(_PLACE, (found.id,)).fetchone()),
            **change,
        }
        _insert(database, "database_backups", backup)
    database.commit()
    return found


_PLACE: Final = "SELECT account_id, region, node FROM database_clusters WHERE id = ?"


def _backup(cluster_id: str, at: int) -> dict[str, Any]:
    moments = {"started_at", "completed_at", "created_at", "updated_at"}
    return {
        "cluster_id": cluster_id,
        "status": "succeeded",
        "faults": "[]",
        "kind": "base",
        "trigger": "schedule",
        "progress": 100,
        "size_bytes": 55_000_000,
        "stored_bytes": 4_500_000,
        "verification": "never",
        "label": f"at {at}",
        **dict.fromkeys(moments, at),
    }


def _insert(database: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    names = ", ".join(f'"{each}"' for each in values)
    marks = ", ".join(f":{each}" for each in values)
    database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)
