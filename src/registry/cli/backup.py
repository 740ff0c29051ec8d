"""``entrepot backup`` and ``entrepot restore``: their parsers."""

from __future__ import annotations

from pathlib import Path

from registry.cli.options import Verbs, later
from registry.cli.server_options import add_data, add_local


def add_parsers(commands: Verbs) -> None:
    """Add ``backup`` and ``restore``."""
    backup = add_local(
        commands,
        "backup",
        later("run_backup", "run_backup"),
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
    restore.set_defaults(run=later("run_backup", "run_restore"))
