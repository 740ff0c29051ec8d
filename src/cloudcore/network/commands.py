"""The commands of networks: ``vpcs``, ``subnets``, ``route-tables`` and so on."""

from __future__ import annotations

from typing import Final

from cloudcore.command_line import Act, Option
from cloudcore.network.egress_only_gateway import EGRESS_ONLY_GATEWAY
from cloudcore.network.internet_gateway import INTERNET_GATEWAY
from cloudcore.network.network_interface import NETWORK_INTERFACE
from cloudcore.network.route_table import ROUTE_TABLE
from cloudcore.network.security_group import SECURITY_GROUP
from cloudcore.network.subnet import SUBNET
from cloudcore.network.vpc import VPC
from cloudcore.resources.nouns import noun_of

_VPC: Final = Option("vpc", "VPC that gets the uplink: name, id or CRN", is_required=True)
COMMANDS: Final = (
    noun_of(VPC, words="networks of the account's own"),
    noun_of(SUBNET, words="parts of VPCs, which addresses are had from"),
    noun_of(
        ROUTE_TABLE,
        words="where the packets of subnets go",
        options=(Option("routes", "routes, as a JSON array in a file", "document"),),
    ),
    noun_of(
        INTERNET_GATEWAY,
        words="uplinks of VPCs",
        acts=(
            Act(
                verb="attach",
                words="give a VPC its uplink",
                path="attach",
                options=(_VPC,),
                takes_key=True,
                answer="internet_gateway",
                said="Attached {name} to {vpc.name}",
            ),
            Act(
                verb="detach",
                words="take the uplink from its VPC",
                path="detach",
                takes_key=True,
                answer="internet_gateway",
                said="Detached {name}",
            ),
        ),
    ),
    noun_of(EGRESS_ONLY_GATEWAY, words="ways out for IPv6 by which nothing comes in"),
    noun_of(
        SECURITY_GROUP,
        words="which flows may begin at instances and load balancers",
        options=(Option("rules", "rules, as a JSON array in a file", "document"),),
    ),
    noun_of(NETWORK_INTERFACE, words="who has which address of a subnet"),
)
