"""The family of metering: it counts requests, samples what is stored, and tells what was used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.family import Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.metering.sku import REQUESTS_OF_API

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.metering.needs import MeteringNeeds
    from cloudcore.ports import Opening


async def _open_metering(opening: Opening) -> MeteringNeeds:
    from cloudcore.metering import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _metering_routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.metering import routes  # noqa: PLC0415 - the web framework

    return routes.HANDLERS


def _schedule_metering(needs: MeteringNeeds) -> Sequence[Scheduled]:
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415
    from cloudcore.metering import sampling  # noqa: PLC0415 - SQLAlchemy

    sample = partial(sampling.sample, needs.database, needs.clock, needs.region, needs.samples)
    return (Scheduled("metering.samples", sampling.EVERY_SECONDS, sample),)


METERING: Final[Family[MeteringNeeds]] = Family(
    name="metering",
    title="Usage",
    paths=("/v1/usage",),
    open=_open_metering,
    routes=_metering_routes,
    schedule=_schedule_metering,
    skus=(REQUESTS_OF_API,),
    resource_kinds=(
        ResourceKind(
            crn="crn:metering:<region>:<account>:usage/*",
            actions=("metering:GetUsage",),
            summaries={"metering:GetUsage": "Read what the account has used, by hour or day."},
        ),
    ),
)
