"""Parsers of commands that do by hand what a run does in the background, at a limited rate."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from registry.cli.options import add_output
from registry.cli.server_options import add_data

if TYPE_CHECKING:
    from registry.cli.parser import CommandParser


def whole_number(text: str) -> int:
    """Return the number of an option; argparse tells the user if it is none."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def add_limit_rate(command: argparse.ArgumentParser) -> None:
    """Add ``--limit-rate``."""
    command.add_argument(
        "--limit-rate",
        type=whole_number,
        default=0,
        metavar="BYTES",
        help="read at most so many bytes per second (as many as the disk gives)",
    )


def add_status(
    command: CommandParser, words: str, show: Callable[[argparse.Namespace], int]
) -> None:
    """Add ``status``, which shows what `words` say."""
    verbs = command.add_commands()
    verbs.metavar = "[COMMAND]"
    status = verbs.add_parser("status", help=words, description=f"Show {words}.")
    add_data(status)
    add_output(status)
    for action in status._actions:  # else these defaults hide what was given before the command
        if action.dest in ("config", "data"):
            action.default = argparse.SUPPRESS
    status.set_defaults(run=show)
