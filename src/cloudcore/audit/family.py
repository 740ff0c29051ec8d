"""The audit family: events of all other families, kept for a time, read by their owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cloudcore.family import Family
from cloudcore.iam.vocabulary import ResourceKind

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.audit.log import AuditNeeds
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.ports import Offer, Opening

_HOUR: Final = 3600


async def _open(opening: Opening) -> AuditNeeds:
    from cloudcore.audit import log  # noqa: PLC0415 - SQLAlchemy

    return await log.open_needs(opening)


def _offers() -> Sequence[Offer]:
    from cloudcore.audit import log  # noqa: PLC0415 - SQLAlchemy

    return log.OFFERS


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.audit import routes  # noqa: PLC0415 - the web framework

    return routes.HANDLERS


def _schedule(needs: AuditNeeds) -> Sequence[Scheduled]:
    from cloudcore.audit.rows import forget_events  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.clock import MICROSECONDS  # noqa: PLC0415
    from cloudcore.db.rows import forget_all  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415

    async def forget() -> None:
        before = needs.clock() - needs.kept_seconds * MICROSECONDS
        await forget_all(needs.database, forget_events, before)

    return (Scheduled("audit.expired_events", _HOUR, forget),)


AUDIT: Final[Family[AuditNeeds]] = Family(
    name="audit",
    paths=("/v1/audit-events",),
    open=_open,
    offers=_offers,
    routes=_routes,
    schedule=_schedule,
    resource_kinds=(
        ResourceKind(
            crn="crn:audit:<region>:<account>:event/<id>",
            actions=("audit:GetAuditEvent", "audit:ListAuditEvents"),
        ),
    ),
)
