"""Parsers of the commands that run a registry, or work on its data.

The modules that carry them out are imported when their command runs: ``--help`` and the commands
that call a registry need neither server nor database.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from cloudcore.commands.parser import Verbs
from registry.cli.server.loading import import_server_module, lazy_command
from registry.cli.server.options import (
    add_acme,
    add_allowed_hosts,
    add_data,
    add_local,
    add_s3,
    add_serving,
    settings_of,
)

_DEV_DATA: Final = Path("entrepot-dev-data")
"""Another folder, since neither ``dev`` nor ``serve`` takes the other's."""


def add_parsers(commands: Verbs) -> None:
    """Add ``dev``, ``init``, ``serve``, ``ready``, ``fsck``, and commands for lost credentials."""
    dev = commands.add_parser(
        "dev", help="run a registry on this machine: loopback only, no sign-in, account 'dev'"
    )
    add_serving(dev)
    add_data(dev, _DEV_DATA)
    dev.set_defaults(run=_dev)
    init = commands.add_parser("init", help="make the first account of an install")
    init.add_argument("--account", required=True, metavar="HANDLE", help="the account's handle")
    init.add_argument(
        "--admin-email", required=True, metavar="ADDRESS", help="whom the account belongs to"
    )
    add_data(init)
    init.set_defaults(run=lazy_command("serve", "run_init"))
    reset = add_local(
        commands,
        "reset-password",
        lazy_command("lost_credentials", "run_reset_password"),
        "give a person a new one-time password",
        "Give a person a new one-time password, and end the person's sessions.",
    )
    reset.add_argument("address", metavar="ADDRESS", help="the person's e-mail address")
    reset.add_argument(
        "--organization",
        metavar="ID",
        help="an organization of the person; needed only if several persons have the address",
    )
    reset.add_argument("--resume", action="store_true", help="let a suspended person in again")
    key = add_local(
        commands,
        "new-access-key",
        lazy_command("lost_credentials", "run_new_access_key"),
        "add an access key to a service account",
        "Add an access key to a service account, sealed with the root key of the install.",
    )
    key.add_argument(
        "service_account",
        metavar="SERVICE-ACCOUNT",
        help="name of the service account; 'entrepot init' makes 'admin'",
    )
    key.add_argument(
        "--account", metavar="HANDLE", help="its account; needed only if there are several"
    )
    key.add_argument(
        "--replace",
        action="store_true",
        help="delete its other keys, and end the sessions they signed in",
    )
    admin = add_local(
        commands,
        "restore-admin",
        lazy_command("lost_credentials", "run_restore_admin"),
        "give a person all rights in an account",
        "Give a person all rights in an account whose administrators have lost theirs: create or"
        " repair its role 'admin', with the policy 'admin' alone, which allows everything.",
    )
    admin.add_argument("--account", required=True, metavar="HANDLE", help="the account's handle")
    admin.add_argument(
        "--email", required=True, metavar="ADDRESS", help="a member of its organization"
    )
    serve = commands.add_parser("serve", help="run a registry with accounts and sign-in")
    add_serving(serve)
    add_acme(serve)
    add_s3(serve)
    add_allowed_hosts(serve)
    add_data(serve)
    serve.set_defaults(run=_serve)
    ready = commands.add_parser(
        "ready", help="ask the server on this machine whether it can serve; exit 1 if not"
    )
    add_serving(ready)
    add_acme(ready)
    add_data(ready)
    ready.set_defaults(run=lazy_command("ready", "run_ready"))
    fsck = commands.add_parser(
        "fsck", help="compare the blob store with the metadata; exit 1 when anything is wrong"
    )
    fsck.add_argument("--quick", action="store_true", help="do not read and hash every blob")
    fsck.add_argument(
        "--remove-orphans",
        action="store_true",
        help="if all else is well, set aside stored files that belong to no row; they are deleted"
        " days later (see 'entrepot gc orphans')",
    )
    add_data(fsck)
    fsck.set_defaults(run=lazy_command("fsck", "run_fsck"))


def _dev(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    status: int = import_server_module("dev").run_dev(settings)
    return status


def _serve(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    status: int = import_server_module("serve").run_serve(settings)
    return status
