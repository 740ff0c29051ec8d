"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cloudcore.command_line import Act, Option

DESCRIPTION: Final = Option("description", 'for persons; "" takes it away')
FORCE: Final = Option(
    "force", "even if it takes your own right to give rights", "flag", is_query=True
)
_TEMPLATES: Final = {
    "pull": ("reader", "pull and list"),
    "push": ("pusher", "push, tag, pull, and create by a first push"),
    "admin": ("admin", "do everything with"),
}
"""The ready-made policy that each option stands for, and what it allows."""
GRANTS: Final = tuple(
    Option(
        option,
        f"allow to {words} these repositories, such as web/*; repeatable, or with commas",
        "many",
        metavar="NAMES",
    )
    for option, (_, words) in _TEMPLATES.items()
)
"""Options that give ready-made rights on repositories."""


def status_act(field: str, verb: str, status: str, words: str, said: str) -> Act:
    """Return a command that gives a resource another status."""
    document = {"status": status}
    return Act(verb, words, method="PATCH", document=document, answer=field, said=said)


class Grant(NamedTuple):
    """A ready-made policy on repositories."""

    template: str
    names: list[str]
    """Of repositories; with ``*`` at the end, all that begin so."""

    @property
    def words(self) -> str:
        """Return what it allows, such as ``pusher of web/*``."""
        return f"{self.template} of {', '.join(self.names)}"


def grants_of(values: Mapping[str, Any]) -> Sequence[Grant]:
    """Return the ready-made policies that `GRANTS` ask for."""
    return [
        Grant(template, names)
        for option, (template, _) in _TEMPLATES.items()
        if (names := [each for text in values.get(option, ()) for each in text.split(",")])
    ]
