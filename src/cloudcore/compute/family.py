"""The family of instances: pools of them, each of one image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cloudcore.compute.instance_pool import (
    CPU_HOURS,
    INSTANCE_POOL,
    INSTANCES,
    MEMORY,
    MEMORY_HOURS,
    SERVICE,
)
from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.compute.needs import ComputeNeeds
    from cloudcore.db.rows import Forget
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.metering.sampling import Measure
    from cloudcore.nodes.node import Watch
    from cloudcore.nodes.rows import Placing
    from cloudcore.ports import Opening
    from cloudcore.quotas.limits import Counted


async def _open(opening: Opening) -> ComputeNeeds:
    from cloudcore.compute import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.compute.routes import HANDLERS  # noqa: PLC0415 - the web framework

    return HANDLERS


def _job_kinds(needs: ComputeNeeds) -> Sequence[JobKind]:
    from cloudcore.compute.pools import WORK  # noqa: PLC0415 - SQLAlchemy

    return (WORK.job_kind(needs, needs.node.name),)


def _on_node(needs: ComputeNeeds) -> Sequence[Watch]:
    if needs.driver is None:
        return ()
    from cloudcore.compute.reconciler import watch  # noqa: PLC0415 - SQLAlchemy

    return (watch(needs, needs.driver),)


def _placings() -> Sequence[Placing]:
    from cloudcore.compute.pools import PLACING  # noqa: PLC0415 - SQLAlchemy

    return (PLACING,)


def _expiry() -> Sequence[Forget]:
    from cloudcore.compute.rows import forget_deleted  # noqa: PLC0415 - SQLAlchemy

    return (forget_deleted,)


def _samples() -> dict[str, Measure]:
    from cloudcore.compute import rows  # noqa: PLC0415 - SQLAlchemy

    return {MEMORY_HOURS.name: rows.memory_by_account, CPU_HOURS.name: rows.cpu_by_account}


def _uses() -> Sequence[Counted]:
    from cloudcore.compute.rows import (  # noqa: PLC0415 - SQLAlchemy
        POOLS,
        WANTED_INSTANCES,
        WANTED_MEMORY,
    )

    return (POOLS.counted, WANTED_INSTANCES, WANTED_MEMORY)


COMPUTE: Final[Family[ComputeNeeds]] = Family(
    name=SERVICE,
    title="Instance pools",
    open=_open,
    routes=_routes,
    job_kinds=_job_kinds,
    on_node=_on_node,
    placings=_placings,
    expiry=_expiry,
    resources=(INSTANCE_POOL,),
    skus=(MEMORY_HOURS, CPU_HOURS),
    samples=_samples,
    quotas=(INSTANCES, MEMORY),
    uses=_uses,
    commands=(CommandGroup("use the platform's services", ("cloudcore.compute.commands",)),),
)
