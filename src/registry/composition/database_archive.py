"""Backups of database clusters that run on this machine, through the install's S3 endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudcore.databases.archive.bucket_archive import BucketArchive
from cloudcore.databases.archive.driver import BackupTarget
from cloudcore.databases.archive.pgbackrest import ServerPlace
from cloudcore.databases.archive.s3_bridge import Bridge, S3Address
from cloudcore.databases.servers.driver import ServerSpec
from cloudcore.iam.service_roles import ServiceRoles
from cloudcore.nodes.node import Node
from cloudcore.storage.needs import StorageNeeds
from registry.settings.settings import Settings
from registry.settings.texts import is_every_address

if TYPE_CHECKING:
    from cloudcore.databases.servers.bubblewrap import BubblewrapServers


def archive_of(
    settings: Settings,
    node: Node,
    storage: StorageNeeds,
    roles: ServiceRoles,
    servers: BubblewrapServers | None,
) -> tuple[BucketArchive, Bridge | None]:
    """Return the archive, and its bridge to the S3 endpoint. The caller closes the bridge.

    The bridge is None if this machine has no S3 endpoint.
    """
    endpoint = s3_endpoint(settings)
    bridge = None if endpoint is None else Bridge(endpoint)

    def place(target: BackupTarget) -> ServerPlace:
        assert servers is not None, "the cluster is on a machine that runs servers"
        spec = ServerSpec(target.cluster_id, target.version, 0, 0, 0, target.port)
        paths = servers.paths(spec)
        return ServerPlace(paths.data, paths.user, paths.socket_folder, target.port)

    networks = settings.node.registered_networks
    return BucketArchive(storage, roles, bridge, node.folder / "archive", place, networks), bridge


def s3_endpoint(settings: Settings) -> S3Address | None:
    """Return the address at which this machine reaches its own S3 endpoint; None if it has none."""
    port = settings.s3_port or (settings.port if settings.s3_host else 0)
    if not port:
        return None
    files = settings.tls_files
    return S3Address(
        "127.0.0.1" if is_every_address(settings.host) else settings.host,
        port,
        settings.s3_host or "localhost",
        None if files is None else files.certificate,
    )
