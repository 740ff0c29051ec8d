"""Ask for confirmation before an action that is hard to undo."""

from __future__ import annotations

import argparse
import sys

from registry.cli.failure import CommandFailure
from registry.cli.output import printable


def add_confirmation(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``, which answers the question in advance."""
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def confirm(options: argparse.Namespace, question: str) -> None:
    """Ask at a terminal; without a terminal, or with ``--yes``, return at once.

    Raises:
        CommandFailure: the answer is not yes.

    """
    if options.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailure("nothing was changed")
