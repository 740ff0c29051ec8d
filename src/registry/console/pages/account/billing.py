"""Payment methods and invoices of the account's organization."""

from __future__ import annotations

from typing import Final

from litestar import get

from registry.console.nouns.handlers import read_one
from registry.console.nouns.noun_pages import CREATED, Column, CustomMethod, Input, NounPages
from registry.console.nouns.resources import deletion
from registry.console.page_request import InjectedPage, PageResponse

_NAME: Final = Input("display_name", "Name", longest=100)
_DEFAULT: Final = Input("is_default", "Pay invoices by it", "flag")
_COLUMNS: Final = (
    Column("Kind", "type", words={"card": "card", "sepa_debit": "SEPA direct debit"}),
    Column("Default", "is_default", words={True: "yes", False: "no"}),  # type: ignore[dict-item]
    CREATED,
)
PAYMENT_METHOD: Final = NounPages(
    service="billing",
    one="payment_method",
    many="payment_methods",
    label="display_name",
    intro="What the account's organization pays its invoices by. The number of a card is given to"
    " the payment processor alone; here is a token of it.",
    columns=_COLUMNS,
    details=(*_COLUMNS, Column("Brand", "brand"), Column("Ends in", "last4")),
    creates=(
        Input("type", "Kind", "choice", choices=("card", "sepa_debit"), default="card"),
        Input(
            "token",
            "Token",
            "code",
            "What the payment processor gave for the card; never its number.",
            longest=255,
            is_required=True,
        ),
        _NAME,
        _DEFAULT,
    ),
    updates=(_NAME, _DEFAULT),
    created="The payment method was added.",
    methods=(deletion("payment method", "billing:DeletePaymentMethod"),),
)


_STATES: Final = {"open": "open", "paid": "paid", "failed": "failed", "void": "void"}
_OF_INVOICE: Final = (
    Column("Until", "period_end", "until"),
    Column("Total", "total"),
    Column("Currency", "currency"),
    Column("State", "status", "mark", _STATES, usual="paid"),
)
INVOICE: Final = NounPages(
    service="billing",
    one="invoice",
    many="invoices",
    intro="What the account's organization owes for what its accounts used, by month.",
    columns=_OF_INVOICE,
    details=(
        *_OF_INVOICE,
        Column("Declined payments", "attempts", "number"),
        Column("Due", "due_at", "until"),
        Column("Paid", "paid_at", "time", none="not yet"),
    ),
    filters=(Input("status", "State", choices=tuple(_STATES)),),
    methods=(
        CustomMethod(
            "pay",
            "Pay",
            "billing:PayInvoice",
            "The payment was made, or goes on by itself: the state of the invoice says which.",
            asks="It is paid by the default payment method of the organization.",
            can=lambda invoice: invoice["status"] == "open",
        ),
    ),
    parts="noun_invoice.html",
)


@get(f"{INVOICE.path_of_one}/print")
async def print_invoice(page: InjectedPage) -> PageResponse:
    """Show an invoice for printing."""
    return page.show("invoice_print.html", invoice=await read_one(page, INVOICE))
