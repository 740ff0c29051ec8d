"""``entrepot quotas``: use and limits of the account; an operator sets limits on the machine."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.noun_parsers import CommandTable
from cloudcore.commands.nouns import Cell, Noun, Record
from cloudcore.commands.records import size_text
from registry.cli.server.loading import lazy_command
from registry.cli.server.options import add_local
from registry.quotas import UNLIMITED


def _shown(field: str) -> Cell:
    def shown(row: Record) -> object:
        value = row[field]
        if value is not None and value >= UNLIMITED:
            return "any number"
        return size_text(value) if row["unit"] == "bytes" and value is not None else value

    return Cell(field.upper(), field, "number", shown)


QUOTAS: Final = Noun(
    noun="quotas",
    words="how much the account has and may have of each thing",
    is_named_in_path=True,
    known_by="by name",
    columns=("name", _shown("used"), _shown("limit"), _shown("default"), "per", "description"),
)


def add_parsers(commands: CommandTable) -> None:
    """Add ``quotas`` and its commands."""
    verbs = commands.add_described(QUOTAS)
    change = add_local(
        verbs,
        "set",
        lazy_command("quota_limits", "run_set"),
        "set a limit of an account, or of all",
        "Set how much an account may have of something, or all accounts that have no limit of"
        " their own. It holds from the next request on; what there is already stays.",
    )
    change.add_argument("quota", metavar="NAME", help="name of the quota")
    change.add_argument("limit", metavar="LIMIT", help="number, or bytes; 0 for nothing more")
    reset = add_local(
        verbs,
        "reset",
        lazy_command("quota_limits", "run_reset"),
        "forget a limit that was set",
        "Forget a limit that was set: that of all accounts holds again, or the default.",
    )
    reset.add_argument("quota", metavar="NAME", help="name of the quota")
    for each in (change, reset):
        each.add_argument("--account", metavar="HANDLE", help="one account (all accounts)")
