"""Dependencies of load balancers: addresses, certificates and instances of other families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cloudcore.certificate.needs import CERTIFICATES, Certificates
from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.events import EVENTS, Events
from cloudcore.iam.service_roles import SERVICE_ROLES, ServiceRoles
from cloudcore.loadbalancer.load_balancer import LOAD_BALANCER
from cloudcore.network.driver import NetworkDriver
from cloudcore.network.needs import DRIVER
from cloudcore.network.network_interfaces import INTERFACES, Interfaces
from cloudcore.nodes.node import NODE, Node
from cloudcore.ports import Opening, Port
from cloudcore.resource_references import Authorize

if TYPE_CHECKING:
    from cloudcore.loadbalancer.replicas import Replicas

Ranges = Sequence[IPv4Network | IPv6Network]


class FoundPool(Protocol):
    """An instance pool."""

    @property
    def id(self) -> str:
        """Return the pool's id."""

    @property
    def name(self) -> str:
        """Return the pool's name."""


class PoolTarget(Protocol):
    """An instance of a pool, as a target."""

    @property
    def instance_id(self) -> str:
        """Return the instance's id."""

    @property
    def address(self) -> str | None:
        """Return the instance's address in its subnet, or None if it has none."""

    @property
    def socket_folder(self) -> Path | None:
        """Return the folder with a socket for each port, or None if the instance has an address."""

    @property
    def is_ready(self) -> bool:
        """Return True if the instance accepts connections."""


class Pools(Protocol):
    """Finds instance pools of accounts, and the instances in them."""

    def pool(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        reference: str,
        authorize: Authorize | None = None,
    ) -> FoundPool:
        """Return the pool of an id, a name or a CRN; errors as `resource_references.resolve`."""

    def targets(self, tx: Connection, account_id: str, pool_id: str) -> Sequence[PoolTarget]:
        """Return the instances of a pool; empty if the pool was deleted."""


POOLS: Final[Port[Pools]] = Port("loadbalancer.pools")
VIPS: Final[Port[Ranges]] = Port("loadbalancer.vips")
"""The operator's ranges from which load balancers get their addresses; empty: there are no load
balancers."""
TARGETS: Final[Port[Ranges]] = Port("loadbalancer.targets")
"""The ranges in which targets with an address must be, if networks have no namespaces: the proxies
then connect in the machine's own network, and a VPC may have any private range."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What load balancers need from other families: addresses, certificates and instance pools."""

    interfaces: Interfaces
    certificates: Certificates
    pools: Pools
    vips: Ranges


PROXIES: Final[Port[Replicas]] = Port("loadbalancer.proxies")
"""The driver of proxies on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancerNeeds:
    """The dependencies of the routes, the workflow and the watch of load balancers."""

    database: Database
    clock: Clock
    events: Events
    node: Node
    parts: Parts
    network: NetworkDriver
    proxies: Replicas
    roles: ServiceRoles
    dialled: Ranges
    """Addresses that proxies may connect to if networks have no namespaces."""


async def open_needs(opening: Opening) -> LoadBalancerNeeds:
    """Return what the load balancer family needs in this process."""
    return LoadBalancerNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        events=await opening.get(EVENTS),
        node=await opening.get(NODE),
        parts=Parts(
            interfaces=await opening.get(INTERFACES),
            certificates=await opening.get(CERTIFICATES),
            pools=await opening.get(POOLS),
            vips=await opening.get(VIPS),
        ),
        network=await opening.get(DRIVER),
        proxies=await opening.get(PROXIES),
        roles=(await opening.get(SERVICE_ROLES))(LOAD_BALANCER.service),
        dialled=await opening.get(TARGETS),
    )
