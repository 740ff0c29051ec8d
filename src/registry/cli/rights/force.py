"""The option ``--force`` of commands that may take rights from their own caller."""

from __future__ import annotations

import argparse

from registry.cli.api import Query


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``."""
    parser.add_argument(
        "--force", action="store_true", help="even if it takes your own right to give rights"
    )


def forced(options: argparse.Namespace) -> Query:
    """Return the query of a change, which says so if it is forced."""
    return {"force": options.force or None}
