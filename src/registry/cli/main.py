"""The command line: what there is, how it is spelled, and which module does it.

The modules are imported when their command runs: ``--help`` needs neither server nor database.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from cloudcore.errors import PlatformError
from registry.settings import Settings, SettingsError

DEFAULT_DATA = Path("entrepot-data")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0 when all is well, 1 when something is not, 2 for misuse."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except (SettingsError, PlatformError) as error:
        sys.stderr.write(f"entrepot: {error}\n")
        return 2


def _run(options: argparse.Namespace) -> int:
    if options.command in ("login", "logout"):
        return _run_client(options)
    defaults = Settings.from_env(os.environ, Settings(data=DEFAULT_DATA))
    given = {
        item.name: value
        for item in fields(Settings)
        if (value := getattr(options, item.name, None)) is not None
    }
    settings = replace(defaults, **given)
    match options.command:
        case "dev":
            from registry.cli.dev import run_dev  # noqa: PLC0415

            return run_dev(settings)
        case "init":
            from registry.cli.serve import run_init  # noqa: PLC0415

            return run_init(settings, options.account, options.admin_email)
        case "serve":
            from registry.cli.serve import run_serve  # noqa: PLC0415

            return run_serve(settings)
        case _:
            from registry.cli.fsck import run_fsck  # noqa: PLC0415

            return run_fsck(settings, read_objects=not options.quick)


def _run_client(options: argparse.Namespace) -> int:
    from registry.cli.api import ApiError  # noqa: PLC0415
    from registry.cli.login import sign_in, sign_out  # noqa: PLC0415

    try:
        return sign_in(options) if options.command == "login" else sign_out(options)
    except ApiError as error:
        sys.stderr.write(f"entrepot: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="entrepot", description="A self-hosted cloud registry for OCI images and artifacts."
    )
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="command"
    )
    dev = commands.add_parser(
        "dev", help="run a registry on this machine: loopback only, no sign-in, account 'dev'"
    )
    _add_serving(dev)
    _add_data(dev)
    init = commands.add_parser("init", help="make the first account of an install")
    init.add_argument("--account", required=True, metavar="HANDLE", help="the account's handle")
    init.add_argument(
        "--admin-email", required=True, metavar="ADDRESS", help="whom the account belongs to"
    )
    _add_data(init)
    serve = commands.add_parser("serve", help="run a registry with accounts and sign-in")
    _add_serving(serve)
    _add_data(serve)
    fsck = commands.add_parser(
        "fsck", help="compare the blob store with the metadata; exit 1 when anything is wrong"
    )
    fsck.add_argument("--quick", action="store_true", help="do not read and hash every blob")
    _add_data(fsck)
    _add_login(commands)
    return parser


def _add_data(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, metavar="FOLDER", help=f"data (./{DEFAULT_DATA})")


def _add_serving(command: argparse.ArgumentParser) -> None:
    command.add_argument("--host", help="address to listen on (127.0.0.1)")
    command.add_argument("--port", type=int, help="port to listen on; 0 takes a free one (5000)")
    command.add_argument("--workers", type=int, metavar="N", help="worker processes (1)")
    command.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics (off)")


def _add_login(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    login = commands.add_parser("login", help="sign in to a registry")
    login.add_argument("url", help="base URL of the registry, such as https://registry.example.com")
    login.add_argument(
        "--access-key-id", metavar="ID", help="sign in by key pair; the secret is asked for"
    )
    login.add_argument("--role", metavar="ROLE", help="then assume this role (id, CRN or name)")
    login.add_argument("--docker", action="store_true", help="also sign a container client in")
    login.add_argument("--client", default="docker", help="the client --docker signs in (docker)")
    logout = commands.add_parser("logout", help="end a sign-in and forget it")
    logout.add_argument("url", help="base URL of the registry")
