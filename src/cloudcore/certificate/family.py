"""The family of certificates: issued and renewed by an authority, or uploaded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.certificate import certificate
from cloudcore.certificate.certificate import EVENTS
from cloudcore.family import CommandGroup, Family
from cloudcore.iam.vocabulary import ResourceKind

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from litestar.handlers import HTTPRouteHandler

    from cloudcore.certificate.needs import CertificateNeeds
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.ports import Offer, Opening
    from cloudcore.quotas.limits import Counted


async def _open(opening: Opening) -> CertificateNeeds:
    from cloudcore.certificate import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


async def _begin(needs: CertificateNeeds, resources: AsyncExitStack) -> None:
    from cloudcore.certificate.needs import serve_zone  # noqa: PLC0415 - SQLAlchemy

    await serve_zone(needs, resources)


def _offers() -> Sequence[Offer]:
    from cloudcore.certificate import needs  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.ports import offer  # noqa: PLC0415

    return (offer(needs.CERTIFICATES, needs.open_certificates),)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.certificate import routes, settings  # noqa: PLC0415 - the web framework

    return (*routes.HANDLERS, *settings.HANDLERS)


def _job_kinds(needs: CertificateNeeds) -> Sequence[JobKind]:
    from cloudcore.certificate.workflow import WORK  # noqa: PLC0415 - SQLAlchemy

    return (WORK.job_kind(needs),)


def _schedule(needs: CertificateNeeds) -> Sequence[Scheduled]:
    from cloudcore.certificate import chores  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415

    renew, end = partial(chores.renew_due, needs), partial(chores.note_ends, needs)
    return (
        Scheduled("certificate.renewals", chores.EVERY_SECONDS, renew),
        Scheduled("certificate.expired", chores.EVERY_SECONDS, end),
        Scheduled("certificate.revocation_lists", chores.LISTS_SECONDS, needs.embedded.renew_lists),
    )


def _uses() -> Sequence[Counted]:
    from cloudcore.certificate.rows import ROWS  # noqa: PLC0415 - SQLAlchemy

    return (ROWS.counted,)


CERTIFICATE: Final[Family[CertificateNeeds]] = Family(
    name="certificate",
    title="Certificates",
    paths=("/v1/certificate-authorities", "/v1/certificate-settings"),
    open=_open,
    offers=_offers,
    uses=_uses,
    begin=_begin,
    routes=_routes,
    job_kinds=_job_kinds,
    schedule=_schedule,
    resources=(certificate.CERTIFICATE,),
    resource_kinds=(
        ResourceKind(
            crn="crn:certificate:<region>:<account>:certificate-settings/default",
            actions=(
                "certificate:GetCertificateSettings",
                "certificate:UpdateCertificateSettings",
            ),
        ),
    ),
    other_events=EVENTS,
    event_words={
        "certificate.renewal.failed": "A certificate could not be renewed",
        "certificate.certificate.failed": "A certificate could not be issued",
        "certificate.certificate.expiring": "An uploaded certificate ends soon",
        "certificate.certificate.expired": "A certificate has expired",
        "certificate.key.exported": "A private key was exported",
    },
    commands=(CommandGroup("use the platform's services", ("cloudcore.certificate.commands",)),),
)
