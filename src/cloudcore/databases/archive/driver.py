"""The parameter and result types of the archive of backups, and the WAL commands of servers.

A server has neither credentials nor a network. It archives WAL into its spool folder
(`archive_command`), and `BucketArchive.push_wal` moves it to the bucket. While it recovers, it
requests WAL there (`restore_command`), and `BucketArchive.serving_wal` answers.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

BackupKind = Literal["base", "incremental"]

SPOOL_FILES: Final = 64
"""WAL files that a spool holds at most; more stay in the data of the server."""
WANTED: Final = "wanted"
"""The folder in the spool in which a recovering server creates a file with the name of the WAL file
that it needs."""
GIVEN: Final = "given"
"""The folder in the spool in which the server then finds that WAL file, or `NAME.absent`."""


class BackupProgramMissing(Exception):
    """Backups are impossible here; the message names the missing program or setting."""


class BackupFailed(Exception):
    """A backup or restore failed; the message has the program's last lines, and no secret."""


class BucketGone(BackupFailed):
    """The bucket was deleted, with all backups in it."""


class RegisteredEndpoint(NamedTuple):
    """The address and credentials of a server that runs elsewhere."""

    host: str
    port: int
    username: str
    password: str
    ca: str | None
    """PEM certificates of the authorities that may have issued the server's certificate, which must
    then be for `host`. None: the connection is encrypted, but the certificate is not checked."""

    def __repr__(self) -> str:
        """Return the address alone: the password must not get into logs."""
        return f"RegisteredEndpoint({self.host!r}, {self.port})"


class BackupTarget(NamedTuple):
    """A cluster and the bucket of its backups."""

    cluster_id: str
    account_id: str
    version: int
    """The major version of its server."""
    bucket_id: str
    type: Literal["managed", "registered"]
    endpoint: RegisteredEndpoint | None = None
    """The endpoint of a registered cluster; None for a managed one."""
    port: int = 0
    """`ServerSpec.port` of a managed cluster; 0 for a registered one."""


class ListedBackup(NamedTuple):
    """A complete backup in the bucket."""

    label: str
    kind: BackupKind
    backup_id: str | None
    """The `backup_id` passed to `BucketArchive.back_up`; None if another program made the
    backup."""
    base_label: str | None
    """For an incremental backup, the label of the base backup at the start of its chain; else
    None."""
    size_bytes: int
    """The size of the files that a restore writes."""
    stored_bytes: int
    """The size of the objects that this backup added to the bucket."""
    started_at: int
    """Microseconds since the epoch, as all times here."""
    completed_at: int


class Recovery(NamedTuple):
    """The point to which a server replays WAL after a restore, before it accepts connections."""

    target_time: int | None
    """Replay stops before the first transaction that was committed after this moment. None: replay
    stops as soon as the files of the backup are consistent."""
    uses_archive: bool
    """WAL comes from the archive (`restore_command`); else it is among the restored files."""
    is_to_end: bool = False
    """Replay all WAL of the archive, whatever `target_time` is."""


def archive_command(spool: str, most: int = SPOOL_FILES) -> str:
    """Return a server's ``archive_command``; `spool` is the path that the server sees.

    The command fails while the spool has `most` files. A file appears in the spool complete or not
    at all. pgBackRest makes a backup only if the command contains pgBackRest's name, so a comment
    mentions it.
    """
    return (
        f"test -e {spool}/%f && cmp -s %p {spool}/%f || "
        f'{{ test "$(ls {spool} | wc -l)" -lt {most} && cp %p {spool}/.%f && '
        f"sync {spool}/.%f && mv {spool}/.%f {spool}/%f && sync {spool}; }}"
        " # pgbackrest pushes it"
    )


def restore_command(spool: str) -> str:
    """Return a recovering server's ``restore_command``; `spool` is the path that the server sees.

    The command waits until the requested file, or ``NAME.absent``, is in the spool.
    """
    given = f"{spool}/{GIVEN}/%f"
    return (
        f": >{spool}/{WANTED}/%f; "
        f"until test -e {given} || test -e {given}.absent; do sleep 0.1; done; "
        f"rm -f {given}.absent; mv {given} %p"
    )
