"""A database cluster of an account with all that its pages show: backups of each kind and state."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec import structs

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.databases.backups.backup import BACKUP_FAILED, Backup
from cloudcore.databases.backups.rows import BACKUPS
from cloudcore.databases.clusters.cluster import Cluster, Endpoint
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.db.base import Connection
from cloudcore.jobs.faults import Fault
from cloudcore.resources.resource import Reference
from tests.integration.console_shop import Shop

LIST: Final = "/console/services/clusters"
DAY: Final = 86_400 * MICROSECONDS


class Furnished(NamedTuple):
    """Ids of what was made."""

    cluster: str
    base: str
    """Proved."""
    incremental: str
    failed: str

    @property
    def page(self) -> str:
        return f"{LIST}/{self.cluster}"


async def furnish_cluster(shop: Shop) -> Furnished:
    """Add a cluster that takes connections, with two backups and one that failed."""
    served = shop.served
    token, now = served.acme.program_token, served.clock()
    bucket = {"name": "backups-of-acme"}
    await served.make("/v1/buckets", bucket, token=token)
    asked = {"name": "shop", "size": {"memory_mb": 256}, "bucket": bucket["name"]}
    made = await served.ask("POST", "/v1/clusters", asked, token=token)
    assert made.status_code == 202, made.text
    cluster = made.json()["cluster"]
    ids = [uuid7(now - (3 - each) * DAY) for each in range(3)]

    def fill(tx: Connection) -> None:
        found = CLUSTERS.lock(tx, served.acme.account_id, cluster["id"])
        found = structs.replace(
            found,
            status="active",
            version=15,
            host="127.0.0.1",
            ca="ROOTS",
            node="far",  # which programs another machine has, nobody asks this one
            port=20_009,
        )
        CLUSTERS.save(tx, found)
        for each in (
            _backup(
                found,
                ids[0],
                now - 3 * DAY,
                verification="succeeded",
                verified_at=now - DAY,
                verified_by="rows",
            ),
            _backup(found, ids[1], now - 2 * DAY, kind="incremental", base_id=ids[0]),
            _failed(_backup(found, ids[2], now - DAY)),
        ):
            BACKUPS.add(tx, each)

    await served.database.write(fill)
    return Furnished(cluster["id"], *ids)


async def furnish_registered(shop: Shop) -> None:
    """Add a cluster whose server runs elsewhere."""
    served = shop.served
    asked = {"name": "elsewhere", "size": {"memory_mb": 256}}
    made = await served.ask("POST", "/v1/clusters", asked, token=served.acme.program_token)
    assert made.status_code == 202, made.text
    endpoint = Endpoint(host="db.example.com", port=5432, username="entrepot", database="postgres")

    def change(tx: Connection) -> None:
        found = CLUSTERS.lock(tx, served.acme.account_id, made.json()["cluster"]["id"])
        found = structs.replace(
            found, type="registered", status="active", endpoint=endpoint, port=None
        )
        CLUSTERS.save(tx, found)

    await served.database.write(change)


async def set_status(shop: Shop, cluster_id: str, status: str) -> None:
    """Let a cluster have a state."""

    def change(tx: Connection) -> None:
        found = CLUSTERS.lock(tx, shop.served.acme.account_id, cluster_id)
        CLUSTERS.save(tx, structs.replace(found, status=status))

    await shop.served.database.write(change)


def _backup(of: Cluster, backup_id: str, at: int, **more: Any) -> Backup:  # noqa: ANN401
    return Backup(
        **{
            "id": backup_id,
            "account_id": of.account_id,
            "region": of.region,
            "created_at": at,
            "updated_at": at,
            "cluster": Reference(of.id, of.name),
            "node": of.node,
            "kind": "base",
            "status": "succeeded",
            "progress": 100,
            "size_bytes": 3_000_000,
            "stored_bytes": 1_000_000,
            "started_at": at,
            "completed_at": at,
            "label": backup_id,
            **more,
        }
    )


def _failed(of: Backup) -> Backup:
    fault = Fault(BACKUP_FAILED, "the bucket is <full>", of.created_at, of.created_at, 1)
    return structs.replace(
        of, status="failed", size_bytes=None, stored_bytes=None, completed_at=None, faults=(fault,)
    )
