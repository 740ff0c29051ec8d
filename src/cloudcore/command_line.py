"""The interface of the command line for the commands of families.

A module of commands has ``add_parsers(commands)``, which gets a `CommandLine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class PublicList(NamedTuple):
    """A command that shows a public list."""

    verb: str
    words: str
    """Help text."""
    path: str
    field: str
    """The field of the response that holds the rows."""
    columns: tuple[tuple[str, str], ...]
    """The columns of the table: heading and field of a row."""


class CommandLine(Protocol):
    """The command line to which commands are added."""

    def add_public_lists(self, noun: str, words: str, lists: Sequence[PublicList]) -> None:
        """Add a noun with a command for each list, none of which needs a sign-in."""
        ...
