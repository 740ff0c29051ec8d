"""The billing family: payment methods, invoices and their payment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cloudcore.billing.description import CREATED, EVENTS, PAYMENT_FAILED, PAYMENT_METHODS
from cloudcore.family import CommandGroup, Family
from cloudcore.iam.vocabulary import ResourceKind

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.billing.needs import BillingNeeds
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.ports import Opening

_HOUR: Final = 3600


async def _open(opening: Opening) -> BillingNeeds:
    from cloudcore.billing import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.billing import invoice_routes, payment_method_routes  # noqa: PLC0415 - web framework

    return (*payment_method_routes.HANDLERS, *invoice_routes.HANDLERS)


def _job_kinds(needs: BillingNeeds) -> Sequence[JobKind]:
    from cloudcore.billing.charging import job_kind  # noqa: PLC0415 - SQLAlchemy

    return (job_kind(needs),)


def _schedule(needs: BillingNeeds) -> Sequence[Scheduled]:
    from functools import partial  # noqa: PLC0415

    from cloudcore.billing.closing import close_months  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415

    return (Scheduled("billing.closing", _HOUR, partial(close_months, needs)),)


BILLING: Final[Family[BillingNeeds]] = Family(
    name="billing",
    paths=("/v1/invoices", "/v1/payment-methods"),
    open=_open,
    routes=_routes,
    job_kinds=_job_kinds,
    schedule=_schedule,
    resource_kinds=(
        ResourceKind(
            crn="crn:billing:<region>:<account>:payment-method/<id>",
            actions=(
                "billing:CreatePaymentMethod",
                "billing:DeletePaymentMethod",
                "billing:GetPaymentMethod",
                "billing:ListPaymentMethods",
                "billing:UpdatePaymentMethod",
            ),
        ),
        ResourceKind(
            crn="crn:billing:<region>:<account>:invoice/<id>",
            actions=("billing:GetInvoice", "billing:ListInvoices", "billing:PayInvoice"),
        ),
    ),
    recorded_actions=("billing:RetryInvoice", "billing:SettleInvoice", "billing:VoidInvoice"),
    other_events=EVENTS,
    event_words={
        CREATED: "The invoice of a month was made",
        PAYMENT_FAILED: "The payment of an invoice was declined",
    },
    quotas=(PAYMENT_METHODS,),
    commands=(CommandGroup("set up an account", ("cloudcore.billing.commands",)),),
)
