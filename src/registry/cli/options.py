"""Arguments and options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from registry.cli.output import FORMS, TABLE
from registry.cli.parser import CommandParser, Commands

Verbs: TypeAlias = "Commands[CommandParser]"
Run: TypeAlias = Callable[[argparse.Namespace], int]
"""What carries a command out, and returns its exit status."""


def add_noun(commands: Verbs, noun: str, words: str) -> Verbs:
    """Add a noun; return the object to which its commands are added."""
    return commands.add_parser(noun, help=words, description=_sentence(words)).add_commands()


def add_verb(verbs: Verbs, verb: str, run: Run, words: str) -> argparse.ArgumentParser:
    """Add a command that calls a registry, and return its parser."""
    parser = verbs.add_parser(verb, help=words, description=_sentence(words))
    add_registry(parser)
    add_output(parser)
    parser.set_defaults(run=run)
    return parser


def later(module: str, function: str) -> Run:
    """Return a command of `registry.cli`, whose module is imported only when it runs.

    The commands on the registry's machine import the whole registry, which no other needs.
    """

    def run(options: argparse.Namespace) -> int:
        status: int = getattr(import_module(f"registry.cli.{module}"), function)(options)
        return status

    return run


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``, the format of what is printed."""
    parser.add_argument("--output", "-o", choices=FORMS, default=TABLE, help="how to print (table)")


def add_registry(parser: argparse.ArgumentParser) -> None:
    """Add ``--registry``, the URL of the registry to call."""
    parser.add_argument(
        "--registry",
        metavar="URL",
        help="which registry (ENTREPOT_REGISTRY; else the only one you are signed in to)",
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
