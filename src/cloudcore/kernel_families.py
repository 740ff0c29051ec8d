"""The families of the kernel itself: shared chores, metering, and quotas.

`KERNEL` has the tables and chores that all families share, and no routes. `METERING` counts
requests, samples what is stored, and serves ``/v1/usage``. `QUOTAS` serves ``/v1/quotas``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cloudcore.family import Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.metering.sku import REQUESTS_OF_API
from cloudcore.quotas.quota import NEARLY_REACHED, REACHED

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.db.rows import Forget
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.metering.needs import MeteringNeeds
    from cloudcore.nodes.rows import Placing
    from cloudcore.ports import Install, Opening
    from cloudcore.quotas.needs import QuotaNeeds

_MINUTE: Final = 60
_HOUR: Final = 3600


class KernelNeeds(NamedTuple):
    """The dependencies of the kernel's chores."""

    install: Install
    placings: Sequence[Placing]


async def _open_kernel(opening: Opening) -> KernelNeeds:
    from cloudcore.nodes.rows import PLACINGS  # noqa: PLC0415 - SQLAlchemy

    return KernelNeeds(opening.install, await opening.get(PLACINGS))


def _schedule_kernel(needs: KernelNeeds) -> Sequence[Scheduled]:
    from cloudcore.db.rows import forget_all  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs import outbox  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415
    from cloudcore.nodes import rows as nodes  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.web import ratelimit  # noqa: PLC0415 - SQLAlchemy

    database, clock = needs.install.database, needs.install.clock

    async def forget_windows() -> None:
        await forget_all(database, ratelimit.forget_ended, clock())

    forget_events = partial(outbox.forget_undelivered, database, clock)
    look = partial(nodes.look, database, clock, needs.placings)
    return (
        # Often, because unauthenticated clients can create many.
        Scheduled("kernel.rate_windows", _MINUTE, forget_windows),
        Scheduled("kernel.undelivered_events", _HOUR, forget_events),
        Scheduled("kernel.nodes", nodes.LOOK_SECONDS, look),
    )


def _expiry() -> Sequence[Forget]:
    from cloudcore.jobs import outbox, queue  # noqa: PLC0415
    from cloudcore.metering import sampling, usage  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.web import idempotency  # noqa: PLC0415 - SQLAlchemy

    return (
        idempotency.forget_expired,
        queue.forget_finished,
        outbox.forget_delivered,
        usage.forget_hours,
        usage.forget_reports,
        sampling.forget_samples,
    )


KERNEL: Final[Family[KernelNeeds]] = Family(
    name="kernel", open=_open_kernel, schedule=_schedule_kernel, expiry=_expiry
)


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


async def _open_quotas(opening: Opening) -> QuotaNeeds:
    from cloudcore.quotas import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _quota_routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.quotas import routes  # noqa: PLC0415 - the web framework

    return routes.HANDLERS


QUOTAS: Final[Family[QuotaNeeds]] = Family(
    name="quotas",
    title="Quotas",
    paths=("/v1/quotas",),
    open=_open_quotas,
    routes=_quota_routes,
    resource_kinds=(
        ResourceKind(
            crn="crn:quotas:<region>:<account>:quota/<name>",
            actions=(
                "quotas:GetQuota",
                "quotas:ListQuotas",
                "quotas:ResetQuota",
                "quotas:SetQuota",
            ),
        ),
    ),
    other_events=(NEARLY_REACHED, REACHED),
    event_words={
        NEARLY_REACHED: "An account has most of what it may have of something",
        REACHED: "An account has all that it may have of something",
    },
)
