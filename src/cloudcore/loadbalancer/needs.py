"""What load balancers depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cloudcore.certificate.needs import CERTIFICATES
from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.events import EVENTS, Events
from cloudcore.iam.service_roles import SERVICE_ROLES, ServiceRoles
from cloudcore.loadbalancer import ports
from cloudcore.loadbalancer.driver import ProxyDriver
from cloudcore.loadbalancer.load_balancer import LOAD_BALANCER
from cloudcore.loadbalancer.ports import Parts, Ranges
from cloudcore.network.driver import NetworkDriver
from cloudcore.network.needs import DRIVER, INTERFACES
from cloudcore.nodes.node import NODE, Node
from cloudcore.ports import Opening, Port

PROXIES: Final[Port[ProxyDriver]] = Port("loadbalancer.proxies")
"""What runs proxies on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancerNeeds:
    """The dependencies of the routes, the work and the watch of load balancers."""

    database: Database
    clock: Clock
    events: Events
    node: Node
    parts: Parts
    network: NetworkDriver
    proxies: ProxyDriver
    roles: ServiceRoles
    dialled: Ranges
    """What proxies may connect to by address if networks have no namespaces."""


async def open_needs(opening: Opening) -> LoadBalancerNeeds:
    """Return the dependencies of one process."""
    return LoadBalancerNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        events=await opening.get(EVENTS),
        node=await opening.get(NODE),
        parts=Parts(
            interfaces=await opening.get(INTERFACES),
            certificates=await opening.get(CERTIFICATES),
            pools=await opening.get(ports.POOLS),
            vips=await opening.get(ports.VIPS),
        ),
        network=await opening.get(DRIVER),
        proxies=await opening.get(PROXIES),
        roles=(await opening.get(SERVICE_ROLES))(LOAD_BALANCER.service),
        dialled=await opening.get(ports.TARGETS),
    )
