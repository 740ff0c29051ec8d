"""Let families add commands (`cloudcore.command_line`)."""

from __future__ import annotations

from typing import Any

from cloudcore.command_line import Act, Noun
from registry.cli.nouns import add_command, add_described
from registry.cli.options import Verbs
from registry.cli.parser import Commands


class CommandTable(Commands):  # type: ignore[type-arg] # argparse has no type parameters at run time
    """The top-level commands."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - of argparse
        super().__init__(*args, **kwargs)
        self.described: list[Noun] = []
        """The nouns added by `add_described`."""

    def add_module(self, module: Any) -> None:  # noqa: ANN401 - of either kind
        """Add the commands that a module describes (``COMMANDS``), or that it adds itself."""
        if hasattr(module, "add_parsers"):
            module.add_parsers(self)
            return
        for each in module.COMMANDS:
            (self.add_described if isinstance(each, Noun) else self.add_command)(each)

    def add_described(self, noun: Noun) -> Verbs:
        """Add a noun with its commands; return what has them."""
        self.described.append(noun)
        return add_described(self, noun)

    def add_command(self, act: Act) -> None:
        """Add a command that is of no noun."""
        add_command(self, act)
