"""Backups of database clusters that run on this machine, through the install's S3 endpoint."""

from __future__ import annotations

from cloudcore.databases import needs as databases
from cloudcore.databases.archive.bucket_archive import BucketArchive
from cloudcore.databases.archive.driver import BackupTarget
from cloudcore.databases.archive.pgbackrest import ServerPlace
from cloudcore.databases.archive.s3_bridge import Bridge, S3Address
from cloudcore.databases.clusters.cluster import CLUSTER
from cloudcore.databases.servers.driver import ServerSpec
from cloudcore.iam.service_roles import SERVICE_ROLES
from cloudcore.nodes.node import NODE
from cloudcore.ports import Opening
from cloudcore.storage.family import STORAGE
from registry.composition.stores import STORES
from registry.settings.settings import Settings
from registry.settings.texts import is_every_address


async def open_archive(opening: Opening) -> BucketArchive:
    """Return the archive, with a bridge to the S3 endpoint if this machine has one."""
    settings, node = (await opening.get(STORES)).settings, await opening.get(NODE)
    storage, roles = await opening.needs_of(STORAGE), await opening.get(SERVICE_ROLES)
    servers = await opening.get(databases.SERVERS)
    bridge = None
    if (endpoint := s3_endpoint(settings)) is not None:
        bridge = Bridge(endpoint)
        opening.resources.push_async_callback(bridge.close)

    def place(target: BackupTarget) -> ServerPlace:
        assert servers is not None, "the cluster is on a machine that runs servers"
        spec = ServerSpec(target.cluster_id, target.version, 0, 0, 0, target.port)
        paths = servers.paths(spec)
        return ServerPlace(paths.data, paths.user, paths.socket_folder, target.port)

    folder, networks = node.folder / "archive", settings.node.registered_networks
    return BucketArchive(storage, roles(CLUSTER.service), bridge, folder, place, networks)


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
