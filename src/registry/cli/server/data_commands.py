"""Parsers of the commands that verify, seal, back up and restore the data of a registry."""

from __future__ import annotations

import argparse
from pathlib import Path

from cloudcore.commands.parser import CommandParser, Run, Verbs, add_output
from registry.cli.server.loading import lazy_command
from registry.cli.server.options import add_data, add_local


def add_parsers(commands: Verbs) -> None:
    """Add ``scrub``, ``seal``, ``backup`` and ``restore``."""
    _add_scrub(commands)
    _add_seal(commands)
    _add_backup(commands)


def _add_scrub(commands: Verbs) -> None:
    """Add ``scrub`` and ``scrub status``."""
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
    """Add ``seal`` and ``seal status``."""
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
    """Add ``backup`` and ``restore``."""
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
    """Return the folder that an argument names; refuse a URL, which would become a folder too."""
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
    """Add ``--limit-rate``."""
    command.add_argument(
        "--limit-rate",
        type=_whole_number,
        default=0,
        metavar="BYTES",
        help="read at most so many bytes per second (as many as the disk gives)",
    )


def _add_status(command: CommandParser, words: str, show: Run) -> None:
    """Add ``status``, which shows what `words` say."""
    verbs = command.add_commands()
    verbs.metavar = "[COMMAND]"
    status = verbs.add_parser("status", help=words, description=f"Show {words}.")
    add_data(status)
    add_output(status)
    for action in status._actions:  # else these defaults hide what was given before the command
        if action.dest in ("config", "data"):
            action.default = argparse.SUPPRESS
    status.set_defaults(run=show)
