"""What instances ask of other families: a network, who is told of them; and a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from cloudcore.compute.sandbox import SandboxDriver
from cloudcore.db.base import Connection
from cloudcore.network.plan import InterfacePlan
from cloudcore.ports import Port
from cloudcore.resource_references import Authorize


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


class Subnet(Named, Protocol):
    """A subnet of a VPC."""

    @property
    def vpc_id(self) -> str:
        """Return the id of its VPC."""
        ...

    @property
    def node(self) -> str:
        """Return the machine that the VPC is on."""
        ...


class Interface(Protocol):
    """What an instance has in a subnet."""

    @property
    def id(self) -> str:
        """Return its id."""
        ...

    @property
    def address_ipv4(self) -> str | None:
        """Return its IPv4 address, if it has any."""
        ...

    @property
    def address_ipv6(self) -> str | None:
        """Return its IPv6 address, if it has any."""
        ...


class Interfaces(Protocol):
    """The subnets and security groups of accounts, and what has addresses in them."""

    def subnet(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        reference: str,
        authorize: Authorize | None = None,
    ) -> Subnet:
        """Return the subnet that an id, a name or a CRN means; errors as `resolve`."""
        ...

    def security_groups(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        vpc_id: str,
        references: Sequence[str],
        authorize: Authorize | None = None,
    ) -> Sequence[Named]:
        """Return the security groups of a VPC that references mean; errors as `resolve`."""
        ...

    def place(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        subnet: str,
        security_groups: Sequence[str],
        owner: str,
        now: int,
        *,
        is_balancer: bool = False,
    ) -> Interface:
        """Take a free address of a subnet for what a CRN names; ids without groups: the default.

        Raise a `PlatformError` if there is none, or no such subnet any more.
        """
        ...

    def release(self, tx: Connection, interface_id: str, now: int) -> None:
        """Give an address back; no error if that was done before."""
        ...

    def set_groups(
        self, tx: Connection, interface_id: str, group_ids: Sequence[str], now: int
    ) -> None:
        """Change the security groups of an interface."""
        ...


class Network(Protocol):
    """The driver of networks on this machine."""

    async def attach(self, vpc_id: str, interface: InterfacePlan, netns: Path) -> None:
        """Put an interface into the namespace of an instance; no error if it is there."""
        ...

    async def detach(self, vpc_id: str, interface_id: str) -> None:
        """Take an interface away; no error if it is gone."""
        ...

    def namespace_of(self, vpc_id: str) -> Path | None:
        """Return the network namespace of a VPC, or None if it has none here."""
        ...


PoolChanged = Callable[[Connection, str, str, int], object]
"""Is told, by account, pool and moment, that other instances of a pool take connections now."""

INTERFACES: Final[Port[Interfaces]] = Port("compute.interfaces")
NETWORK: Final[Port[Network]] = Port("compute.network")
DRIVER: Final[Port[SandboxDriver | None]] = Port("compute.driver")
"""What runs instances on this machine; None if it runs none."""
DISK_MB: Final[Port[int]] = Port("compute.disk_mb")
"""MiB that an instance may write."""
POOL_CHANGED: Final[Port[PoolChanged]] = Port("compute.pool_changed")
