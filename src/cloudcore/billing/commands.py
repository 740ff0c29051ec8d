"""``entrepot payment-methods``, and the ``entrepot invoices`` commands that call the platform."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, Record, argument


def _expiry(method: Record) -> str:
    return f"{method['exp_month']:02}/{method['exp_year']}" if "exp_year" in method else ""


_METHODS: Final = (
    "id",
    "type",
    Cell("NAME", "display_name"),
    Cell("DEFAULT", "is_default"),
    Cell("EXPIRES", shown=_expiry),
    "created_at",
)
_INVOICES: Final = (
    "name",
    "total",
    "currency",
    "status",
    Cell("DECLINED", "attempts", "number"),
    "due_at",
)
_LINES: Final = (
    Cell("ACCOUNT", "account.name"),
    "sku",
    "region",
    Cell("MONTH", shown=lambda line: line["month"][:7]),
    "quantity",
    "unit",
    Cell("PRICE", "unit_amount"),
    "amount",
)


def _show(run: Invocation, invoice: Record) -> None:
    run.say(run.text("{organization.name}, {name}: {total} {currency}, {status}", invoice))
    run.show_rows(invoice["lines"], _LINES)


METHODS: Final = Noun(
    noun="payment-methods",
    words="cards and bank accounts that pay the invoices of the account's organization",
    metavar="ID",
    known_by="id",
    name="id",
    columns=_METHODS,
    create=(
        argument("token", "of the payment processor; never the number of a card"),
        Option("type", "what the token is of", choices=("card", "sepa_debit"), is_required=True),
        Option("display_name", "what persons call it", name="name"),
        Option("is_default", "pay invoices by it from now on", "flag", "default"),
    ),
    created="Added {display_name}: {id}",
    update=(
        Option("display_name", "what persons call it", name="name"),
        Option("is_default", "pay invoices by it from now on", "flag", "default"),
    ),
    delete=Deletion(
        words="delete a payment method",
        question="Delete the payment method {display_name}?",
        said="Deleted {display_name}",
    ),
)
INVOICES: Final = Noun(
    noun="invoices",
    words="what the account's organization owes for each month",
    columns=_INVOICES,
    shown=_show,
    name_filter="name",
    filters=(
        Option("status", "only those in this state", choices=("open", "paid", "failed", "void")),
    ),
    commands=(
        Command(
            verb="pay",
            words="pay an open invoice now",
            path="pay",
            takes_key=True,
            options=(
                Option(
                    "payment_method",
                    "the id of another than the default payment method",
                    metavar="ID",
                ),
            ),
            answer="invoice",
            said="{total} {currency}: {status}",
        ),
    ),
)

COMMANDS: Final = (METHODS,)
