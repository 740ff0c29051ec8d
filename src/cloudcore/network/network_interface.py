"""What a network interface is: the addresses that an instance or a load balancer has."""

from __future__ import annotations

from typing import Annotated, Final

from cloudcore.network.subnet import SUBNET
from cloudcore.network.vpc import VPC
from cloudcore.resources.record import Record, Reference, own
from cloudcore.resources.resource import Filter, Resource, Target


class NetworkInterface(Record, frozen=True, kw_only=True):
    """The addresses that an instance or a load balancer has in a subnet."""

    name: Annotated[str, own(heading="NAME")]
    """Made by the platform."""
    vpc: Annotated[Reference, own(heading="VPC")]
    subnet: Annotated[Reference, own(heading="SUBNET")]
    address_ipv4: Annotated[str | None, own(heading="IPV4", shows_null=True)] = None
    address_ipv6: Annotated[str | None, own(heading="IPV6", shows_null=True)] = None
    owner: Annotated[str, own(heading="OWNER", form="whole")]
    """CRN of what has it, and gives it back."""
    is_balancer: Annotated[bool, own(hidden=True)] = False
    security_groups: Annotated[tuple[Reference, ...], own(hidden=True)] = ()
    """Ids and names, which never change."""


NETWORK_INTERFACE: Final = Resource(
    record=NetworkInterface,
    service="network",
    one="network_interface",
    many="network_interfaces",
    methods=("list", "get"),
    told=(),
    quota=10_000,
    filters=(Filter("name"), Filter("vpc_id"), Filter("subnet_id")),
    refers={
        "vpc": Target(VPC, VPC.action("get")),
        "subnet": Target(SUBNET, SUBNET.action("get")),
    },
)
"""The network interfaces of accounts."""
