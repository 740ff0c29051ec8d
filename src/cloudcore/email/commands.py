"""``entrepot suppressions``: addresses that get no mail."""

from __future__ import annotations

from cloudcore.command_line import CommandLine
from cloudcore.email.suppression import SUPPRESSION
from cloudcore.resources.nouns import noun_of


def add_parsers(commands: CommandLine) -> None:
    """Add the nouns of email."""
    commands.add_described(noun_of(SUPPRESSION, words="addresses that get no mail of the account"))
