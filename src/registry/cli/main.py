"""Parse the command line, run the command, and turn its errors into an exit status.

Families list the modules that describe commands. The ``run`` default of a parser is the function
that carries out the command.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Container, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from cloudcore.command_failures import FAILED, MISUSE, CommandFailure
from cloudcore.commands.client import Product
from cloudcore.commands.noun_parsers import CommandTable, command_names
from cloudcore.commands.parser import CommandParser, Group, VersionOption
from cloudcore.db.refusals import DiskFull
from cloudcore.errors import PlatformError
from cloudcore.family import CommandGroup
from cloudcore.files import NO_ROOM
from registry.cli.client.api import StoredSignIn, send_public
from registry.cli.client.references import find_repository_crn
from registry.cli.commands.container_login import log_in
from registry.composition.families import FAMILIES
from registry.settings.texts import SettingsError

SERVER_MODULES: Final = ("registry.cli.server.commands",)
_SERVING: Final = ("dev", "serve")
"""Long-running commands; to save memory, only the parsers of `SERVER_MODULES` are made for them."""
_OWN: Final = CommandGroup("this command", ("registry.cli.commands.completion",))
_TITLES: Final = ("sign in", "use a registry", "people and rights", "set up an account")
"""Titles of the groups that the help shows first."""
_EXAMPLES: Final = """\
examples:
  entrepot dev                    run a registry to try, on this machine
  entrepot login https://registry.example.com --role admin
  entrepot images list app        show what the repository 'app' holds
  entrepot tags set app:prod 1.4  promote an image, without pull or push
  entrepot lifecycle preview app  show what would expire now, and by which rule

'entrepot COMMAND --help' tells more of each.
"""
_PRODUCT: Final = Product(StoredSignIn, send_public, find_repository_crn, log_in)
_INTERRUPTED: Final = 130  # 128 and the number of SIGINT, as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status (see `cloudcore.command_failures`)."""
    _open_closed_streams()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        options = _parse(given)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Names and descriptions may have characters that this terminal's encoding lacks.
            sys.stdout.reconfigure(errors="backslashreplace")
        status: int = options.run(options) or 0
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return _INTERRUPTED
    except CommandFailure as error:
        return _print_error(str(error), error.exit_status)
    except DiskFull as error:
        return _print_error(error.advice, FAILED)
    except (SettingsError, PlatformError) as error:
        return _print_error(str(error), MISUSE)
    except OSError as error:
        if error.errno in NO_ROOM and error.filename is not None:
            return _print_error(DiskFull(Path(error.filename)).advice, FAILED)
        if error.filename is None:  # the error is not of a named file
            _drop_output()
            return _print_error(error.strerror or str(error), FAILED)
        return _print_error(f"{error.filename}: {error.strerror or error}", MISUSE)
    return status


def _parse(given: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exit if it is wrong, or asks for help or the version."""
    try:
        return make_parser(_modules_of(given[0]) if given else None).parse_args(given)
    except SystemExit:
        sys.stdout.flush()  # here, so that `main` reports a failure; else Python does at its exit
        raise


def _modules_of(command: str) -> Container[str] | None:
    """Return the modules whose parsers this command needs; None means all.

    Modules are imported until one describes the command. The parsers of all would take 0.1 s.
    """
    if command in _SERVING:
        return SERVER_MODULES
    if command == "--version":
        return ()
    for group in _groups():
        for name in group.modules:
            if command in command_names(import_module(name)):
                return (name,)
    return None


def _groups() -> Iterator[CommandGroup]:
    for family in FAMILIES:
        yield from family.commands
    yield _OWN


def _drop_output() -> None:
    """Flush standard output; if that fails, discard the output: Python would fail again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_parser(modules: Container[str] | None = None) -> CommandParser:
    """Return the parser of the whole command line, or of only the commands in `modules`."""
    parser = CommandParser(
        prog="entrepot",
        description="A self-hosted cloud registry for OCI images and artifacts.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=VersionOption, nargs=0, help="show the version and exit"
    )
    parser.set_defaults(product=_PRODUCT)
    commands = parser.add_commands(CommandTable)
    assert isinstance(commands, CommandTable)
    groups: dict[str, list[argparse.Action]] = {title: [] for title in _TITLES}
    for group in _groups():
        before = len(commands._choices_actions)
        for module in group.modules:
            if modules is not None and module not in modules:
                continue
            commands.add_module(import_module(module))
        groups.setdefault(group.title, []).extend(commands._choices_actions[before:])
    parser.groups = [Group(title, found) for title, found in groups.items() if found]
    return parser


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed (``>&-``)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - open until exit


def _print_error(message: str, status: int) -> int:
    sys.stderr.write(f"entrepot: {message}\n")
    return status
