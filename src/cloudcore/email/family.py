"""The family of email."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.email.dedicated_ip import DEDICATED_IP, PAUSED
from cloudcore.email.resources import (
    CONFIRM,
    FAILED,
    IP_POOL,
    MESSAGE,
    MESSAGES,
    SENDING_IDENTITY,
    SUPPRESSION,
    TEMPLATE,
    UNSUBSCRIBE,
    VERIFIED,
)
from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from litestar.handlers import HTTPRouteHandler

    from cloudcore.db.rows import Forget
    from cloudcore.email.needs import EmailNeeds
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.ports import Opening
    from cloudcore.quotas.limits import Counted


async def _open(opening: Opening) -> EmailNeeds:
    from cloudcore.email import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


async def _begin(needs: EmailNeeds, resources: AsyncExitStack) -> None:
    from cloudcore.email.bounces.bounces import take_return_mail  # noqa: PLC0415 - SQLAlchemy

    await take_return_mail(needs, resources)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.email.dedicated_ips import HANDLERS as DEDICATED_IPS  # noqa: PLC0415 - as below
    from cloudcore.email.dedicated_ips import IP_POOL_METHODS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.identity_routes import HANDLERS as IDENTITIES  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.messages.routes import HANDLERS as OF_MESSAGES  # noqa: PLC0415
    from cloudcore.email.suppressions import SUPPRESSIONS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.templates import HANDLERS as TEMPLATES  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.unsubscribe_routes import HANDLERS as UNSUBSCRIPTIONS  # noqa: PLC0415
    from cloudcore.resources.routes import standard_routes  # noqa: PLC0415 - the web framework

    return (
        *standard_routes(SUPPRESSIONS),
        *standard_routes(IP_POOL_METHODS),
        *DEDICATED_IPS,
        *IDENTITIES,
        *TEMPLATES,
        *OF_MESSAGES,
        *UNSUBSCRIPTIONS,
    )


def _expiry() -> Sequence[Forget]:
    from cloudcore.email.messages import rows as message_rows  # noqa: PLC0415 - SQLAlchemy

    return (message_rows.forget_content, message_rows.forget, message_rows.forget_rates)


def _job_kinds(needs: EmailNeeds) -> Sequence[JobKind]:
    from cloudcore.email import identity_verification  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.messages.delivery import Postman  # noqa: PLC0415 - SQLAlchemy

    return (identity_verification.WORK.job_kind(needs), Postman(needs=needs).job_kind())


def _schedule(needs: EmailNeeds) -> Sequence[Scheduled]:
    from cloudcore.email import dedicated_ips, identity_verification  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415

    check, tell = (
        partial(identity_verification.check_due, needs),
        partial(dedicated_ips.tell_others, needs),
    )
    return (
        Scheduled("email.identity_checks", identity_verification.EVERY_SECONDS, check),
        Scheduled("email.dedicated_ips", dedicated_ips.EVERY_SECONDS, tell),
    )


def _uses() -> Sequence[Counted]:
    from cloudcore.email import sender_rows, suppressions, templates  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.messages import rows as message_rows  # noqa: PLC0415 - SQLAlchemy

    rows = (
        suppressions.ROWS,
        sender_rows.IP_POOL_ROWS,
        sender_rows.DEDICATED_IP_ROWS,
        sender_rows.IDENTITY_ROWS,
        templates.ROWS,
    )
    return (*(each.counted for each in rows), message_rows.WAITING_MESSAGES)


EMAIL: Final[Family[EmailNeeds]] = Family(
    name="email",
    paths=("/v1/email-unsubscriptions", "/v1/identity-confirmations"),
    open=_open,
    begin=_begin,
    routes=_routes,
    job_kinds=_job_kinds,
    schedule=_schedule,
    expiry=_expiry,
    resources=(SUPPRESSION, IP_POOL, DEDICATED_IP, SENDING_IDENTITY, TEMPLATE, MESSAGE),
    skus=(MESSAGES,),
    uses=_uses,
    recorded_actions=(CONFIRM,),
    told_changes={UNSUBSCRIBE: "email.suppression.created"},
    other_events=(VERIFIED, FAILED, PAUSED),
    event_words={
        PAUSED: "A dedicated IP sends no more, as too much of its mail bounced",
        VERIFIED: "Mail may be sent from a domain or an address",
        FAILED: "The DKIM record of a domain is not there",
    },
    commands=(CommandGroup("use the platform's services", ("cloudcore.email.commands",)),),
)
