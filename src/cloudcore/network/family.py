"""The family of networks: VPCs and what belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
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
from cloudcore.nodes.node import Watch

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.jobs.kinds import JobKind
    from cloudcore.network.needs import NetworkNeeds
    from cloudcore.nodes.rows import Placing
    from cloudcore.ports import Offer, Opening
    from cloudcore.quotas.limits import Counted


async def _open(opening: Opening) -> NetworkNeeds:
    from cloudcore.network import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _offers() -> Sequence[Offer]:
    from cloudcore.network.network_interfaces import INTERFACES, Interfaces  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.ports import known  # noqa: PLC0415

    return (known(INTERFACES, Interfaces()),)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.network import gateways  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.network.network_interfaces import NETWORK_INTERFACES  # noqa: PLC0415
    from cloudcore.network.reachability_routes import get_reachability  # noqa: PLC0415
    from cloudcore.network.route_tables import ROUTE_TABLES  # noqa: PLC0415
    from cloudcore.network.security_groups import SECURITY_GROUPS  # noqa: PLC0415
    from cloudcore.network.subnets import SUBNETS  # noqa: PLC0415
    from cloudcore.network.vpcs import VPCS  # noqa: PLC0415
    from cloudcore.resources.routes import standard_routes  # noqa: PLC0415 - the web framework

    return (
        *standard_routes(VPCS),
        get_reachability,
        *standard_routes(gateways.INTERNET_GATEWAYS),
        gateways.attach_internet_gateway,
        gateways.detach_internet_gateway,
        *standard_routes(gateways.EGRESS_ONLY_GATEWAYS),
        *standard_routes(ROUTE_TABLES),
        *standard_routes(SUBNETS),
        *standard_routes(SECURITY_GROUPS),
        *standard_routes(NETWORK_INTERFACES),
    )


def _uses() -> Sequence[Counted]:
    from cloudcore.network import rows  # noqa: PLC0415 - SQLAlchemy

    return tuple(each.counted for each in rows.ALL)


def _placings() -> Sequence[Placing]:
    from cloudcore.network.workflow import PLACING  # noqa: PLC0415 - SQLAlchemy

    return (PLACING,)


def _job_kinds(needs: NetworkNeeds) -> Sequence[JobKind]:
    from cloudcore.network.workflow import VPC_WORK  # noqa: PLC0415 - SQLAlchemy

    return (VPC_WORK.job_kind(needs, needs.node.name),)


def _on_node(needs: NetworkNeeds) -> Sequence[Watch]:
    from cloudcore.network.workflow import RECONCILE_SECONDS, Reconciler  # noqa: PLC0415 - SQLAlchemy

    return (Watch("networks", RECONCILE_SECONDS, Reconciler(needs).turn),)


NETWORK: Final[Family[NetworkNeeds]] = Family(
    name="network",
    open=_open,
    offers=_offers,
    routes=_routes,
    uses=_uses,
    job_kinds=_job_kinds,
    on_node=_on_node,
    placings=_placings,
    resources=(
        VPC,
        INTERNET_GATEWAY,
        EGRESS_ONLY_GATEWAY,
        ROUTE_TABLE,
        SUBNET,
        SECURITY_GROUP,
        NETWORK_INTERFACE,
    ),
    told_changes={
        "network:AttachInternetGateway": "network.internet_gateway.attached",
        "network:DetachInternetGateway": "network.internet_gateway.detached",
    },
    commands=(CommandGroup("use the platform's services", ("cloudcore.network.commands",)),),
)
