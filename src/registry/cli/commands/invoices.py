"""``entrepot invoices``: invoices of the organization, and an operator's decisions on them."""

from __future__ import annotations

from typing import Final

from cloudcore.billing.commands import INVOICES
from cloudcore.commands.noun_parsers import CommandTable
from registry.cli.server.loading import lazy_command
from registry.cli.server.options import add_local

_VERBS: Final = {
    "void": ("let nobody owe an invoice", "It stays in the list, and nothing is charged for it."),
    "settle": ("note that an invoice was paid otherwise", "As by a transfer to the bank."),
    "retry": (
        "let an invoice be tried anew",
        "Count its declined payments from the beginning, and try to charge it at once.",
    ),
}


def add_parsers(commands: CommandTable) -> None:
    """Add ``invoices`` and its commands."""
    verbs = commands.add_described(INVOICES)
    for verb, (words, more) in _VERBS.items():
        parser = add_local(
            verbs,
            verb,
            lazy_command("invoice_decisions", "run_decision"),
            f"{words}, on the registry's machine",
            f"{words[:1].upper()}{words[1:]}. {more} For an invoice that is open or has failed.",
        )
        parser.add_argument("invoice", metavar="ID", help="id of the invoice")
        parser.set_defaults(decision=verb)
