"""Let families add commands (`cloudcore.command_line`)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from cloudcore.command_line import Act, Noun, PublicList
from registry.cli.nouns import add_command, add_described
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import column, write_records
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
        """Add a noun with its commands (`CommandLine.add_described`); return what has them."""
        self.described.append(noun)
        return add_described(self, noun)

    def add_command(self, act: Act) -> None:
        """Add a command that is of no noun (`CommandLine.add_command`)."""
        add_command(self, act)

    def add_public_lists(self, noun: str, words: str, public_lists: Sequence[PublicList]) -> None:
        """Add a noun, and a command under it for each list (`CommandLine.add_public_lists`)."""
        verbs = add_noun(self, noun, words)
        for each in public_lists:
            add_verb(verbs, each.verb, partial(_show, each), each.words)


def _show(shown: PublicList, options: argparse.Namespace) -> int:
    """Print a list; call with the token of the sign-in, if there is one."""
    from registry.cli.credentials import credentials_path  # noqa: PLC0415 - no server needs these
    from registry.cli.failure import NotSignedIn  # noqa: PLC0415
    from registry.cli.sign_in import SignIn, bearer, choose_registry  # noqa: PLC0415
    from registry.cli.transport import Transport  # noqa: PLC0415

    path = credentials_path(os.environ)
    transport = Transport(choose_registry(options.registry, os.environ, path))
    try:
        headers = bearer(SignIn(transport, path).token())
    except NotSignedIn:
        headers = {}
    rows = transport.send("GET", shown.path, headers)[shown.field]
    columns = [column(heading, field) for heading, field in shown.columns]
    write_records(rows, columns, options.output)
    return 0
