"""What the command line offers to the commands of families.

A module of commands has ``add_parsers(commands)``, which gets a `CommandLine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class PublicList(NamedTuple):
    """A command that shows a list which anyone may read."""

    verb: str
    words: str
    """What it does, for its help."""
    path: str
    field: str
    """Of the answer, which holds the rows."""
    columns: tuple[tuple[str, str], ...]
    """Of the table: heading, and field of a row."""


class CommandLine(Protocol):
    """Where commands are added."""

    def add_public_lists(self, noun: str, words: str, lists: Sequence[PublicList]) -> None:
        """Add a noun, and a command below it for each list. None of them needs a sign-in."""
        ...
