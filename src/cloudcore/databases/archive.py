"""Where backups of clusters are kept, as the rest of the family sees it.

A server has no credentials and reaches nothing. What it archives it puts in its spool folder
(`archive_command`), from which `Archive.push_wal` takes it. What it wants back while it recovers it
asks for there (`restore_command`), and gets as long as `Archive.serving_wal` is open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

BackupKind = Literal["base", "incremental"]

SPOOL_FILES: Final = 64
"""Most WAL files that wait to be archived; beyond them a server keeps its WAL to itself."""
WANTED: Final = "wanted"
"""The folder in the spool in which a recovering server makes a file of the name that it wants."""
GIVEN: Final = "given"
"""The folder in the spool in which it then appears, or `NAME.absent`."""


class BackupProgramMissing(Exception):
    """Backups of a cluster cannot be made or restored here; the message names what is missing."""


class BackupFailed(Exception):
    """A run failed; the message says what to do, with the program's own last lines, no secret."""


class RegisteredEndpoint(NamedTuple):
    """A server that runs elsewhere."""

    host: str
    port: int
    username: str
    password: str
    ca: str | None
    """Roots in PEM; then the name in its certificate must be `host`. None: TLS, whoever it is."""

    def __repr__(self) -> str:
        """Return what is no secret."""
        return f"RegisteredEndpoint({self.host!r}, {self.port})"


class BackupTarget(NamedTuple):
    """A cluster, and where its backups go."""

    cluster_id: str
    account_id: str
    version: int
    """The major version of its server."""
    bucket_id: str
    type: Literal["managed", "registered"]
    endpoint: RegisteredEndpoint | None = None
    """Of a registered one."""
    port: int = 0
    """Of a managed one: `ServerSpec.port`."""


class Taken(NamedTuple):
    """A backup that is whole."""

    label: str
    size_bytes: int
    """Of the files that a restore makes."""
    stored_bytes: int
    """Of what this backup added to the bucket."""
    started_at: int
    """Microseconds since the epoch, as all times here."""
    completed_at: int


class Listed(NamedTuple):
    """A backup that the bucket has."""

    label: str
    kind: BackupKind
    backup_id: str | None
    """As `Archive.back_up` was told; None if somebody else has made it."""
    base_label: str | None
    """Of an incremental one: the base that it needs, directly or not."""
    size_bytes: int
    stored_bytes: int
    started_at: int
    completed_at: int


class Recovery(NamedTuple):
    """What a server does with restored files before it takes connections for writing."""

    target_time: int | None
    """Where it stops and becomes a server of its own; None: where the backup is consistent."""
    uses_archive: bool
    """It asks for WAL (`restore_command`); else all that it needs is among the files."""
    to_end: bool = False
    """It takes all WAL that there is, in place of the time: none of it is from after that."""


class PushedWal(NamedTuple):
    """What a look into a spool came to."""

    pushed: int
    """Files that are in the bucket now, and gone from the spool."""
    error: str | None
    """Why others are not."""


class Archive(Protocol):
    """Makes, lists, deletes and restores backups; nothing here knows the rows of backups.

    Everything may be done again after a death at any point. All raise `BackupFailed`.
    """

    def check(self, target: BackupTarget, kind: BackupKind = "base") -> None:
        """Return if this machine can back the cluster up, or raise `BackupProgramMissing`."""
        ...

    async def back_up(
        self, target: BackupTarget, backup_id: str, kind: BackupKind, tell: Callable[[int], None]
    ) -> Taken:
        """Make a backup; a run of the same cluster that a dead service has left is ended first.

        Look for `backup_id` in `listed` before it is done again. `tell` gets the percentage done,
        0 to 100, ascending, from the event loop. WAL must be pushed meanwhile. Never makes a base
        where an incremental one was asked for.
        """
        ...

    async def listed(self, target: BackupTarget) -> Sequence[Listed]:
        """Return the backups that are whole, oldest first: what is true after a death."""
        ...

    async def remove(self, target: BackupTarget, labels: Sequence[str]) -> None:
        """Delete backups, and the incremental ones that need them. No error for what is gone."""
        ...

    async def remove_all(self, target: BackupTarget) -> None:
        """Delete everything that the bucket has of a cluster, its WAL too."""
        ...

    async def restore(
        self,
        target: BackupTarget,
        into: Path,
        user: tuple[int, int] | None,
        *,
        label: str | None,
        target_time: int | None,
        max_bytes: int,
    ) -> Recovery:
        """Fill a folder with the files of a backup; what was in it is deleted.

        `target` is the cluster that was backed up. The files belong to `user`, and are hostile:
        whoever writes into the bucket made them. Without `label` it is the newest backup that was
        complete at `target_time`. More than `max_bytes` fail.
        """
        ...

    def serving_wal(
        self, target: BackupTarget, data: Path, spool: Path, user: tuple[int, int] | None
    ) -> AbstractAsyncContextManager[None]:
        """Give a server that recovers the WAL of `target` that it asks for, until it is left."""
        ...

    async def push_wal(self, target: BackupTarget, spool: Path) -> PushedWal:
        """Move what a managed server has put into its spool to the bucket, oldest first.

        Raises nothing: what fails stays in the spool for the next call.
        """
        ...


def archive_command(spool: str, most: int = SPOOL_FILES) -> str:
    """Return a server's ``archive_command``, for the spool as the server sees it.

    A file appears there whole or not at all. pgBackRest makes no backup unless its name is in it.
    """
    return (
        f"test -e {spool}/%f && cmp -s %p {spool}/%f || "
        f'{{ test "$(ls {spool} | wc -l)" -lt {most} && cp %p {spool}/.%f && '
        f"sync {spool}/.%f && mv {spool}/.%f {spool}/%f && sync {spool}; }}"
        " # pgbackrest pushes it"
    )


def restore_command(spool: str) -> str:
    """Return a recovering server's ``restore_command``, for the spool as the server sees it."""
    given = f"{spool}/{GIVEN}/%f"
    return (
        f": >{spool}/{WANTED}/%f; "
        f"until test -e {given} || test -e {given}.absent; do sleep 0.1; done; "
        f"rm -f {given}.absent; mv {given} %p"
    )
