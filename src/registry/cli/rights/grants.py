"""The options that give ready-made rights on repositories: ``--pull``, ``--push``, ``--admin``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NamedTuple

_OPTIONS: Final = {
    "pull": ("reader", "pull and list"),
    "push": ("pusher", "push, tag, pull, and create by a first push"),
    "admin": ("admin", "do everything with"),
}
"""The ready-made policy that each option stands for, and what it allows."""


class Grant(NamedTuple):
    """A ready-made policy on repositories."""

    template: str
    names: list[str]
    """Of repositories; with ``*`` at the end, all that begin so."""


def add_grants(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    for option, (_, words) in _OPTIONS.items():
        parser.add_argument(
            f"--{option}",
            action="append",
            default=[],
            metavar="NAMES",
            help=f"allow to {words} these repositories, such as web/*; repeatable, or with commas",
        )


def grants_of(options: argparse.Namespace) -> Sequence[Grant]:
    """Return the ready-made policies that the options ask for."""
    return [
        Grant(template, names)
        for option, (template, _) in _OPTIONS.items()
        if (names := [each for text in getattr(options, option) for each in text.split(",")])
    ]


def grant_words(grants: Sequence[Grant]) -> str:
    """Return what grants allow, such as ``pusher of web/*``."""
    return ", ".join(f"{each.template} of {', '.join(each.names)}" for each in grants)
