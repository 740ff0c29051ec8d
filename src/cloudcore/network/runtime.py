"""The network family at run time: its routes, job kind, watch and offered port."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.network import gateways, reachability_routes, rows
from cloudcore.network.needs import NetworkNeeds, open_needs
from cloudcore.network.network_interfaces import INTERFACES, NETWORK_INTERFACES, Interfaces
from cloudcore.network.route_tables import ROUTE_TABLES
from cloudcore.network.security_groups import SECURITY_GROUPS
from cloudcore.network.subnets import SUBNETS
from cloudcore.network.vpcs import VPCS
from cloudcore.network.workflow import PLACING, RECONCILE_SECONDS, VPC_WORK, NetworkReconciler
from cloudcore.nodes.node import Watch
from cloudcore.ports import known
from cloudcore.resources.routes import handlers_of

RUNTIME: Final[Runtime[NetworkNeeds]] = Runtime(
    open=open_needs,
    offers=(known(INTERFACES, Interfaces()),),
    routes=handlers_of(
        VPCS,
        reachability_routes,
        gateways.INTERNET_GATEWAYS,
        gateways.EGRESS_ONLY_GATEWAYS,
        gateways,
        ROUTE_TABLES,
        SUBNETS,
        SECURITY_GROUPS,
        NETWORK_INTERFACES,
    ),
    job_kinds=lambda needs: (VPC_WORK.job_kind(needs, needs.node.name),),
    on_node=lambda needs: (Watch("networks", RECONCILE_SECONDS, NetworkReconciler(needs).turn),),
    placings=(PLACING,),
    uses=tuple(each.counted for each in rows.ALL),
)
