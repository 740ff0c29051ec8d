"""What networks depend on, and what other families have of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Network
from typing import Final

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.network.changes import Checked, RuleChecks
from cloudcore.network.driver import NetworkDriver
from cloudcore.network.interfaces import Interfaces
from cloudcore.nodes.node import NODE, Node
from cloudcore.ports import Opening, Port

DRIVER: Final[Port[NetworkDriver]] = Port("network.driver")
"""What brings networks about on this machine."""
IPV6_RANGES: Final[Port[Sequence[IPv6Network]]] = Port("network.ipv6_ranges")
"""Global networks that VPCs may have their prefixes from."""
INTERFACES: Final[Port[Interfaces]] = Port("network.interfaces")
"""Where instances and load balancers get their addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkNeeds:
    """The dependencies of the routes, the jobs and the watches of networks."""

    database: Database
    clock: Clock
    node: Node
    driver: NetworkDriver
    ipv6_ranges: Sequence[IPv6Network] = ()
    rule_checks: RuleChecks = field(default_factory=RuleChecks)
    checked: Checked | None = None
    """Rules that the driver takes, while a request makes a change with them."""


async def open_needs(opening: Opening) -> NetworkNeeds:
    """Return the dependencies of one process."""
    return NetworkNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        node=await opening.get(NODE),
        driver=await opening.get(DRIVER),
        ipv6_ranges=await opening.get(IPV6_RANGES),
    )
