"""Dependencies of the compute family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cloudcore.clock import Clock
from cloudcore.compute.images import IMAGES, Images
from cloudcore.compute.instance_pool import SERVICE
from cloudcore.db.base import Connection, Database
from cloudcore.events import EVENTS, Events
from cloudcore.iam.service_roles import SERVICE_ROLES, ServiceRoles
from cloudcore.network import needs as network
from cloudcore.network.driver import NetworkDriver
from cloudcore.network.network_interfaces import INTERFACES, Interfaces
from cloudcore.nodes.node import NODE, Node
from cloudcore.ports import Opening, Port

if TYPE_CHECKING:
    from cloudcore.compute.shim_instances import ShimInstances

PoolChanged = Callable[[Connection, str, str, int], object]
"""Called, with account, pool and time, when the ready instances of a pool may have changed."""

DRIVER: Final[Port[ShimInstances | None]] = Port("compute.driver")
"""The driver of this machine; None if it runs no instances."""
DISK_MB: Final[Port[int]] = Port("compute.disk_mb")
"""MiB that an instance may write."""
POOL_CHANGED: Final[Port[PoolChanged]] = Port("compute.pool_changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNeeds:
    """The dependencies of the routes, the jobs and the watch of instances."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    node: Node
    driver: ShimInstances | None
    """None: this machine runs no instances."""
    images: Images
    interfaces: Interfaces
    network: NetworkDriver
    roles: ServiceRoles
    pool_changed: PoolChanged
    events: Events
    url: str
    """Base URL of ``/v1``, for programs in instances."""
    disk_mb: int = 1024


async def open_needs(opening: Opening) -> ComputeNeeds:
    """Return what the compute family needs in this process."""
    install = opening.install
    return ComputeNeeds(
        database=install.database,
        clock=install.clock,
        new_id=install.new_id,
        node=await opening.get(NODE),
        driver=await opening.get(DRIVER),
        images=await opening.get(IMAGES),
        interfaces=await opening.get(INTERFACES),
        network=await opening.get(network.DRIVER),
        roles=(await opening.get(SERVICE_ROLES))(SERVICE),
        pool_changed=await opening.get(POOL_CHANGED),
        events=await opening.get(EVENTS),
        url=install.url,
        disk_mb=await opening.get(DISK_MB),
    )
