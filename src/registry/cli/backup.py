"""``entrepot backup`` and ``entrepot restore``: their parsers."""

from __future__ import annotations

import argparse
from pathlib import Path

from registry.cli.options import Verbs
from registry.cli.server_options import add_data, add_local, settings_of


def add_parsers(commands: Verbs) -> None:
    """Add ``backup`` and ``restore``."""
    backup = add_local(
        commands,
        "backup",
        _backup,
        "copy database and blobs to a folder",
        "Copy the database, then the blobs that it names, to a folder; pushes and pulls go on. A"
        " later backup to the same folder copies only what is new.",
    )
    backup.add_argument("target", type=Path, metavar="TARGET", help="folder of the backup")
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
        description="Restore a backup into an empty data folder, then check it as 'fsck' does.",
    )
    restore.add_argument("source", type=Path, metavar="SOURCE", help="folder of the backup")
    restore.add_argument(
        "--root-key", type=Path, metavar="FILE", help="the root key, if the backup has none"
    )
    restore.add_argument(
        "--quick", action="store_true", help="do not read and hash every restored blob"
    )
    add_data(restore)
    restore.set_defaults(run=_restore)


def _backup(options: argparse.Namespace) -> int:
    from registry.cli.run_backup import run_backup  # noqa: PLC0415 - imports the whole registry

    return run_backup(
        settings_of(options),
        options.target,
        links=options.link,
        verifies=options.verify,
        includes_root_key=options.include_root_key,
    )


def _restore(options: argparse.Namespace) -> int:
    from registry.cli.run_backup import run_restore  # noqa: PLC0415 - as above

    return run_restore(
        settings_of(options), options.source, options.root_key, read_objects=not options.quick
    )
