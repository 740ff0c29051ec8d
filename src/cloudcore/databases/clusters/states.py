"""Store and publish the status of a cluster, and describe it to drivers."""

from __future__ import annotations

from collections.abc import Callable

from cloudcore.databases.archive.driver import BackupTarget, RegisteredEndpoint
from cloudcore.databases.clusters.cluster import CLUSTER, Cluster
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.servers.driver import ServerSpec
from cloudcore.db.base import Connection
from cloudcore.events import Events
from cloudcore.keyring import Keyring
from cloudcore.resources.resource import DELETING


def observe(
    tx: Connection,
    events: Events,
    account_id: str,
    cluster_id: str,
    seen: Callable[[Cluster], Cluster],
    now: int,
) -> None:
    """Store an observed change of a cluster, unless the cluster is gone or being deleted.

    `seen` is a pure function that returns the cluster with its new status and faults.
    """
    changed = CLUSTERS.change(
        tx,
        account_id,
        cluster_id,
        lambda found: found if found.status == DELETING else seen(found),
        now,
    )
    if changed is not None:
        CLUSTER.tell_state(events, tx, *changed)


def spec_of(found: Cluster) -> ServerSpec:
    """Return the server configuration of a managed cluster whose version is known."""
    assert found.version is not None
    assert found.port is not None
    return ServerSpec(
        id=found.id,
        version=found.version,
        memory_mb=found.memory_mb,
        cpu_millis=found.cpu_millis,
        disk_mb=found.disk_mb,
        port=found.port,
        has_archive=found.bucket is not None,
    )


def seal_password(keyring: Keyring, cluster_id: str, password: str) -> bytes:
    """Seal the password of a cluster, for `open_password`."""
    return keyring.seal(password.encode(), _context(cluster_id))


def open_password(keyring: Keyring, found: Cluster) -> str:
    """Return the password that is sealed in a cluster's row."""
    assert found.secret is not None
    return keyring.open(found.secret, _context(found.id)).decode()


def endpoint_of(keyring: Keyring, found: Cluster) -> RegisteredEndpoint | None:
    """Return the endpoint of a registered cluster with its password; None for a managed one."""
    if found.endpoint is None:
        return None
    of = found.endpoint
    return RegisteredEndpoint(of.host, of.port, of.username, open_password(keyring, found), of.ca)


def target_of(keyring: Keyring, found: Cluster) -> BackupTarget:
    """Return the backup target of a cluster, which has a bucket and a known version."""
    assert found.version is not None
    assert found.bucket is not None
    return BackupTarget(
        cluster_id=found.id,
        account_id=found.account_id,
        version=found.version,
        bucket_id=found.bucket,
        type=found.type,
        endpoint=endpoint_of(keyring, found),
        port=found.port or 0,
    )


def _context(cluster_id: str) -> str:
    return f"password of database cluster {cluster_id}"
