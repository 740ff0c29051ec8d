"""The family of load balancers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.loadbalancer.load_balancer import GET_POOL, HOURS, LOAD_BALANCER

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.jobs.kinds import JobKind
    from cloudcore.loadbalancer.needs import LoadBalancerNeeds
    from cloudcore.metering.sampling import Measure
    from cloudcore.nodes.node import Watch
    from cloudcore.nodes.rows import Placing
    from cloudcore.ports import Opening
    from cloudcore.quotas.limits import Counted


async def _open(opening: Opening) -> LoadBalancerNeeds:
    from cloudcore.loadbalancer import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.loadbalancer import routes  # noqa: PLC0415 - the web framework

    return routes.HANDLERS


def _job_kinds(needs: LoadBalancerNeeds) -> Sequence[JobKind]:
    from cloudcore.loadbalancer.workflow import WORK  # noqa: PLC0415 - SQLAlchemy

    return (WORK.job_kind(needs, needs.node.name),)


def _on_node(needs: LoadBalancerNeeds) -> Sequence[Watch]:
    from cloudcore.loadbalancer import watch  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.nodes.node import Watch  # noqa: PLC0415

    turn = watch.ProxyWatch(needs).turn
    return (Watch("the proxies of load balancers", watch.EVERY_SECONDS, turn),)


def _placings() -> Sequence[Placing]:
    from cloudcore.loadbalancer.rows import ROWS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.loadbalancer.workflow import WORK  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.nodes.rows import Placing  # noqa: PLC0415 - SQLAlchemy

    return (Placing(ROWS, WORK.wake),)


def _samples() -> Mapping[str, Measure]:
    from cloudcore.loadbalancer import rows  # noqa: PLC0415 - SQLAlchemy

    return {HOURS.name: lambda database: database.read(rows.counted)}


def _uses() -> Sequence[Counted]:
    from cloudcore.loadbalancer.rows import ROWS  # noqa: PLC0415 - SQLAlchemy

    return (ROWS.counted,)


LOADBALANCER: Final[Family[LoadBalancerNeeds]] = Family(
    name="loadbalancer",
    title="Load balancers",
    open=_open,
    routes=_routes,
    job_kinds=_job_kinds,
    on_node=_on_node,
    placings=_placings,
    samples=_samples,
    uses=_uses,
    resources=(LOAD_BALANCER,),
    foreign_kinds=(
        ResourceKind(
            crn="crn:compute:<region>:<account>:instance-pool/<name>", actions=(GET_POOL,)
        ),
    ),
    skus=(HOURS,),
    commands=(CommandGroup("use the platform's services", ("cloudcore.loadbalancer.commands",)),),
)
