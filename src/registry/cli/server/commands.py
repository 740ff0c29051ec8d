"""Parsers of the commands that run a registry, or work on its data.

The module that carries out a command is imported only when the command runs: ``--help`` and the
commands that call a registry need neither server nor database.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from cloudcore.commands.parser import CommandParser, Run, Verbs, add_output
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
"""Not `DEFAULT_DATA`, since ``dev`` and ``serve`` refuse each other's folders."""


def add_parsers(commands: Verbs) -> None:
    """Add the commands that run a registry, or work on its data."""
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
    _add_scrub(commands)
    _add_seal(commands)
    _add_backup(commands)


def _dev(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    status: int = import_server_module("dev").run_dev(settings)
    return status


def _serve(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    status: int = import_server_module("serve").run_serve(settings)
    return status


def _add_scrub(commands: Verbs) -> None:
    scrub = commands.add_parser(
        "scrub",
        help="read all stored bytes, and tell which are damaged (on the registry's machine)",
        description="Read the stored bytes of all blobs, manifests and objects of buckets, and"
        " compare them with their checksums; no key is needed. Damaged blobs are marked, so that"
        " the next push of the same bytes heals them; a damaged object must be stored again. Exit 1"
        " if anything is damaged. For operators of the registry: it needs the data and the settings"
        " of 'serve', and may run beside it.",
    )
    scrub.add_argument(
        "--repository",
        action="append",
        default=[],
        dest="repositories",
        metavar="ACCOUNT/NAME",
        help="read only the images of this repository; repeatable",
    )
    scrub.add_argument(
        "--older-than",
        type=_whole_number,
        default=0,
        metavar="DAYS",
        help="skip blobs that were verified in these days; so an interrupted scrub goes on",
    )
    _add_limit_rate(scrub)
    add_data(scrub)
    _add_status(
        scrub, "how far the scrub in the background has come", lazy_command("scrub", "run_status")
    )
    scrub.set_defaults(run=lazy_command("scrub", "run_scrub"))


def _add_seal(commands: Verbs) -> None:
    seal = commands.add_parser(
        "seal",
        help="encrypt the blobs that are stored plain (on the registry's machine)",
        description="Encrypt all blobs that are stored plain, each under the key of every"
        " repository that has it. Pushes and pulls go on, and an interrupted run continues where it"
        " stopped. Damaged blobs are marked, so that the next push of the same bytes heals them."
        " Exit 1 if any is damaged, or must stay plain since a key that it needs is disabled or"
        " deleted. For operators of the registry: it needs the data, the settings and the root key"
        " of 'serve', and may run beside it. The plain files are deleted by the garbage collector.",
    )
    _add_limit_rate(seal)
    add_data(seal)
    _add_status(
        seal,
        "how much is stored plain, and how the last turn in the background ended",
        lazy_command("seal", "run_status"),
    )
    seal.set_defaults(run=lazy_command("seal", "run_seal"))


def _add_backup(commands: Verbs) -> None:
    backup = add_local(
        commands,
        "backup",
        lazy_command("backup", "run_backup"),
        "copy database and blobs to a folder",
        "Copy the database, then the blobs that it names, to a folder, from the disk or a bucket of"
        " S3; pushes and pulls go on. A later backup to the same folder copies only what is new.",
    )
    backup.add_argument("target", type=_folder, metavar="TARGET", help="folder of the backup")
    backup.add_argument(
        "--link",
        action="store_true",
        help="give each blob a second name instead of a copy, on the same file system; protects"
        " against deletions, not against a damaged disk",
    )
    backup.add_argument(
        "--verify",
        action="store_true",
        help="read and hash every blob in the backup (else sizes are compared)",
    )
    backup.add_argument(
        "--include-root-key",
        action="store_true",
        help="copy the root key too: whoever has the backup can then read its secrets",
    )
    restore = commands.add_parser(
        "restore",
        help="restore a backup into an empty folder (on the registry's machine)",
        description="Restore a backup into an empty data folder, and its blobs into the bucket of"
        " S3 if the settings name one, whatever they came from; then check it as 'fsck' does.",
    )
    restore.add_argument("source", type=_folder, metavar="SOURCE", help="folder of the backup")
    restore.add_argument(
        "--root-key", type=Path, metavar="FILE", help="the root key, if the backup has none"
    )
    restore.add_argument(
        "--quick", action="store_true", help="do not read and hash every restored blob"
    )
    add_data(restore)
    restore.set_defaults(run=lazy_command("backup", "run_restore"))


def _folder(text: str) -> Path:
    """Return the folder in an argument.

    Raise `argparse.ArgumentTypeError` for a URL: a folder of that name would be created.
    """
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is a URL, and a backup is a folder: back up to a folder of this machine, and"
            " copy that to a bucket with a program such as rclone (docs/how-to/backup.md); restore"
            " from a folder that was copied back"
        )
    return Path(text)


def _whole_number(text: str) -> int:
    """Parse a whole number; raise `argparse.ArgumentTypeError` for another text."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _add_limit_rate(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--limit-rate",
        type=_whole_number,
        default=0,
        metavar="BYTES",
        help="read at most so many bytes per second (as many as the disk gives)",
    )


def _add_status(command: CommandParser, words: str, show: Run) -> None:
    """Add the subcommand ``status``; `words` describe what it shows."""
    verbs = command.add_commands()
    verbs.metavar = "[COMMAND]"
    status = verbs.add_parser("status", help=words, description=f"Show {words}.")
    add_data(status)
    add_output(status)
    for action in status._actions:  # else its defaults override options before `status`
        if action.dest in ("config", "data"):
            action.default = argparse.SUPPRESS
    status.set_defaults(run=show)
