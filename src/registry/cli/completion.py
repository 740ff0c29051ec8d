"""``entrepot completion``: scripts that let a shell complete the command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Final

from registry.cli.options import Verbs

_SHELLS: Final = ("bash", "zsh", "fish")
_FOLDERS: Final = frozenset({"FOLDER"})
_FILES: Final = frozenset({"FILE"})
_HINT: Final = """so that each new shell has it:
  bash  echo 'source <(entrepot completion bash)' >> ~/.bashrc
  zsh   echo 'eval "$(entrepot completion zsh)"' >> ~/.zshrc  # below compinit
  fish  entrepot completion fish > ~/.config/fish/completions/entrepot.fish
"""


def add_parsers(commands: Verbs) -> None:
    """Add ``completion``."""
    parser = commands.add_parser(
        "completion",
        help="print a script that lets a shell complete this command",
        epilog=_HINT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(run=_print)


def _print(options: argparse.Namespace) -> int:
    import shtab  # noqa: PLC0415 - no other command needs it

    from registry.cli.main import make_parser  # noqa: PLC0415 - which adds this module

    parser = make_parser()
    for action in _arguments(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(parser, options.shell))
    return 0


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments and options of a parser and of all commands under it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _arguments(subparser)
