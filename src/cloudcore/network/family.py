"""The network family: VPCs and their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.network.resources import (
    EGRESS_ONLY_GATEWAY,
    INTERNET_GATEWAY,
    NETWORK_INTERFACE,
    ROUTE_TABLE,
    SECURITY_GROUP,
    SUBNET,
    VPC,
)

if TYPE_CHECKING:
    from cloudcore.network.needs import NetworkNeeds


NETWORK: Final[Family[NetworkNeeds]] = Family(
    name="network",
    runs="cloudcore.network.runtime:RUNTIME",
    resources=(
        VPC,
        INTERNET_GATEWAY,
        EGRESS_ONLY_GATEWAY,
        ROUTE_TABLE,
        SUBNET,
        SECURITY_GROUP,
        NETWORK_INTERFACE,
    ),
    event_types_by_action={
        "network:AttachInternetGateway": "network.internet_gateway.attached",
        "network:DetachInternetGateway": "network.internet_gateway.detached",
    },
    commands=(CommandGroup("use the platform's services", ("cloudcore.network.commands",)),),
)
