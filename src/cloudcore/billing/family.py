"""The billing family: payment methods, invoices and their payment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.billing.description import CREATED, EVENTS, PAYMENT_FAILED, PAYMENT_METHODS
from cloudcore.family import CommandGroup, Family
from cloudcore.iam.vocabulary import ResourceKind, standard_actions

if TYPE_CHECKING:
    from cloudcore.billing.needs import BillingNeeds


BILLING: Final[Family[BillingNeeds]] = Family(
    name="billing",
    runs="cloudcore.billing.runtime:RUNTIME",
    paths=("/v1/invoices", "/v1/payment-methods"),
    resource_kinds=(
        ResourceKind(
            crn="crn:billing:<region>:<account>:payment-method/<id>",
            actions=standard_actions("billing", "PaymentMethod"),
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
