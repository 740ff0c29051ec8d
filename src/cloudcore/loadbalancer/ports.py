"""What load balancers ask of others: addresses, certificates and instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final, Protocol

from cloudcore.certificate.port import Certificates
from cloudcore.db.base import Connection
from cloudcore.network.interfaces import Interfaces
from cloudcore.ports import Port
from cloudcore.resource_references import Authorize

Ranges = Sequence[IPv4Network | IPv6Network]


class Named(Protocol):
    """A resource of another family."""

    @property
    def id(self) -> str:
        """Return its id."""
        ...

    @property
    def name(self) -> str:
        """Return its name."""
        ...


class PoolTarget(Protocol):
    """An instance of a pool."""

    @property
    def instance_id(self) -> str:
        """Return its id."""
        ...

    @property
    def address(self) -> str | None:
        """Return its address in its subnet, or None without one."""
        ...

    @property
    def socket_folder(self) -> Path | None:
        """Return the folder of the sockets of its ports, or None if it has an address."""
        ...

    @property
    def is_ready(self) -> bool:
        """Return True if it takes connections."""
        ...


class Pools(Protocol):
    """The instance pools of accounts."""

    def pool(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        reference: str,
        authorize: Authorize | None = None,
    ) -> Named:
        """Return the pool that an id, a name or a CRN means; errors as `resolve`."""
        ...

    def targets(self, tx: Connection, account_id: str, pool_id: str) -> Sequence[PoolTarget]:
        """Return the instances of a pool; none if it was deleted."""
        ...


POOLS: Final[Port[Pools]] = Port("loadbalancer.pools")
VIPS: Final[Port[Ranges]] = Port("loadbalancer.vips")
"""The ranges of the operator that load balancers get their addresses from; none: there are no load
balancers."""
TARGETS: Final[Port[Ranges]] = Port("loadbalancer.targets")
"""Where targets by address may lie if networks have no namespaces: the proxies dial in the
machine's own network then, and a VPC may have any private range."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What load balancers are made of besides themselves."""

    interfaces: Interfaces
    certificates: Certificates
    pools: Pools
    vips: Ranges
