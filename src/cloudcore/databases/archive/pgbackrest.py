"""Backups of managed clusters by pgBackRest; each cluster has its own repository in its bucket.

The source is pgBackRest's user guide and configuration reference, 2.41 and later. A backup whose
run was killed is not listed by `info`, and the next run deletes its files.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import stat
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.databases.archive.bucket_files import BucketAccess, Keys, delete_files, folder_of
from cloudcore.databases.archive.driver import BackupFailed, BackupKind, BackupTarget, ListedBackup
from cloudcore.databases.archive.s3_bridge import NAME, Bridge
from cloudcore.databases.servers.confinement import (
    ConfinedProgram,
    ProgramResult,
    User,
    require,
    run,
)
from cloudcore.databases.servers.driver import DATA_INSIDE, SUPERUSER
from cloudcore.storage.needs import StorageNeeds

STANZA: Final = "main"
KEYS_SECONDS: Final = 12 * 3600
"""The keys of a backup or a restore expire after this time; neither takes longer."""
_CONFIG: Final = "/etc/pgbackrest/pgbackrest.conf"
_ROOTS: Final = "/etc/pgbackrest/roots.pem"
_SOCKETS: Final = "/run/postgresql"
_OPTIONS: Final = """\
repo1-type=s3
repo1-s3-uri-style=path
repo1-bundle=y
log-level-console=warn
log-level-file=off
log-level-stderr=off
log-timestamp=n
lock-path=/tmp/lock
compress-type=gz
compress-level=1
"""
_ANNOTATION: Final = "backup-id"
_FILE: Final = "DETAIL: backup file "
_PERCENT: Final = re.compile(r", ([0-9]{1,3})(?:\.[0-9]{1,3})?%\)")
_LABEL: Final = re.compile(r"[0-9]{8}-[0-9]{6}F(?:_[0-9]{8}-[0-9]{6}I)?")
_ALL: Final = "9999999"
"""More base backups than there can be, so that `expire` deletes only the one named by `--set`."""
_NOISE: Final = re.compile(r"P[0-9]{2} +(?:DETAIL|INFO): |\s*(?:\*\*\* |<\?xml|[a-z0-9-]+: )")
"""Lines that do not say why a run failed: progress, counters and HTTP headers."""
_S3_ERROR: Final = re.compile(r"<Error><Code>([^<]*)</Code><Message>([^<]*)</Message>.*")
_KEPT_LINES: Final = 60
"""How many lines of a run's output are used: an error of S3 comes with all headers."""
_LAST_LINES: Final = 6
_MOST_WORDS: Final = 1000
_ENDING_SECONDS: Final = 20
"""How long a run may still take to end after its service was killed."""


class ServerPlace(NamedTuple):
    """The paths of a cluster's server on this machine."""

    data: Path
    user: User
    socket_folder: Path | None = None
    """None if the server does not run, or the caller does not connect to it."""
    port: int = 0
    """The port in the name of the socket."""
    data_inside: str = DATA_INSIDE


_Seconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 37)]
"""Seconds since the epoch, up to the year 6325: who can write to the bucket can forge them."""
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class _Timestamp(msgspec.Struct):
    start: _Seconds
    stop: _Seconds


class _Repository(msgspec.Struct):
    delta: _Count


class _Sizes(msgspec.Struct):
    size: _Count
    repository: _Repository


class _Backup(msgspec.Struct):
    label: str
    timestamp: _Timestamp
    info: _Sizes
    annotation: dict[str, str] = {}


class _Status(msgspec.Struct):
    code: int
    message: str


class _RepositoryStatus(msgspec.Struct):
    status: _Status


class _Wal(msgspec.Struct):
    max: str | None = None


class _Stanza(msgspec.Struct):
    archive: list[_Wal] = []
    backup: list[_Backup] = []
    repo: list[_RepositoryStatus] = []


_STANZAS: Final = msgspec.json.Decoder(list[_Stanza])
_READ: Final = range(4)
"""Status codes of a repository that `info` could read: with or without backups, or not yet
created."""
_MADE: Final = (0, 2)
"""Of these codes, those of a repository that exists: with or without backups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRepository:
    """The repository of one cluster, with keys to it."""

    cluster_id: str
    keys: Keys
    storage: StorageNeeds
    bridge: Bridge
    lock: int | None = None
    """The descriptor of a file lock, which each run inherits and thereby holds until it ends."""

    async def run(
        self,
        *words: str,
        place: ServerPlace | None = None,
        writes: bool = False,
        wal: Path | None = None,
        each_line: Callable[[str], None] = lambda _line: None,
    ) -> ProgramResult:
        """Run a pgBackRest command to its end; return its exit status and last lines.

        With `place`, it runs as that server's user and sees that server's data and socket.
        `each_line` is called with each line of output. pgBackRest may write only to `wal`, a folder
        that it sees as ``/wal``, and, with `writes`, to the data folder of `place`.
        """
        said = deque[str](maxlen=_KEPT_LINES)

        def read(line: str) -> None:
            said.append(line)
            each_line(line)

        port = await self.bridge.port()
        config = self._config(port) + ("" if place is None else _of_server(place))
        readable: dict[Path, str] = {}
        writable = {} if wal is None else {wal: "/wal"}
        if place is not None:
            (writable if writes else readable)[place.data] = place.data_inside
            if place.socket_folder is not None:
                readable[place.socket_folder] = _SOCKETS
        ended = await run(
            ConfinedProgram(
                argv=(program(), f"--config={_CONFIG}", *words),
                user=None if place is None else place.user,
                readable=readable,
                writable=writable,
                files={
                    _CONFIG: config.encode(),
                    _ROOTS: self.bridge.certificate,
                    "/etc/hosts": f"127.0.0.1 localhost {NAME}\n".encode(),
                },
                has_network=True,
                pass_fds=() if self.lock is None else (self.lock,),
            ),
            read,
        )
        return ended._replace(said=self._told(said))

    def _told(self, lines: Iterable[str]) -> str:
        """Return what the owner may see of a run's output: its error, or else its last lines.

        Headers, counters and secrets are left out.
        """
        kept = [each.strip() for each in lines if not _NOISE.match(each)]
        begins = [place for place, each in enumerate(kept) if " ERROR: [" in each]
        said = "\n".join(kept[begins[-1] if begins else -_LAST_LINES :])
        session = self.keys.session
        for secret in (session.secret_access_key, session.session_token):
            said = said.replace(secret, "…")
        return _S3_ERROR.sub(r"\1: \2", said)[:_MOST_WORDS]

    async def backups(self) -> Sequence[ListedBackup]:
        """Return the backups that `info` lists, oldest first.

        Raise `BackupFailed` if `info` fails, or its output is malformed.
        """
        found = [_listed(each) for stanza in await self._info() for each in stanza.backup]
        return sorted((each for each in found if each), key=lambda each: each.completed_at)

    async def newest_wal(self) -> str:
        """Return the name of the newest WAL file; empty if there is none."""
        found = [each.max or "" for stanza in await self._info() for each in stanza.archive]
        return max(found, default="")

    async def _info(self) -> Sequence[_Stanza]:
        said: list[str] = []
        checked(
            await self.run("info", f"--stanza={STANZA}", "--output=json", each_line=said.append)
        )
        try:
            stanzas = _STANZAS.decode("".join(said))
        except msgspec.DecodeError as error:
            raise BackupFailed(f"what the bucket says of its backups is odd: {error}") from None
        for status in (each for stanza in stanzas for each in _statuses(stanza)):
            if status.code not in _READ:  # the exit status is 0 then, too, but nothing is listed
                words = self._told(status.message.splitlines())
                raise BackupFailed(f"pgBackRest cannot read the bucket: {words}")
        return stanzas

    async def create_stanza(self, place: ServerPlace) -> None:
        """Prepare the repository for a running server, unless it is already prepared."""
        checked(await self.run("stanza-create", f"--stanza={STANZA}", place=place))

    async def back_up(
        self,
        backup_id: str,
        kind: BackupKind,
        place: ServerPlace,
        on_progress: Callable[[int], None],
    ) -> ListedBackup:
        """Back up a running server; return the new backup.

        Raise `BackupFailed` if the run failed, the server's data have a link, or an incremental
        backup has no base. A base that pgBackRest has made instead is deleted.
        """
        stanzas = await self._info()
        if kind == "incremental" and not any(each.backup for each in stanzas):
            raise BackupFailed("there is no base backup that an incremental one could follow")
        await asyncio.to_thread(_refuse_links, place.data)
        if not any(status.code in _MADE for stanza in stanzas for status in _statuses(stanza)):
            await self.create_stanza(place)
        words = (
            *("backup", f"--stanza={STANZA}", f"--type={'full' if kind == 'base' else 'incr'}"),
            *("--no-expire-auto", "--start-fast", "--archive-copy", "--no-resume"),
            *("--log-level-console=detail", f"--annotation={_ANNOTATION}={backup_id}"),
        )

        def read(line: str) -> None:
            if _FILE in line and (found := _PERCENT.search(line)):
                on_progress(int(found[1]))

        checked(await self.run(*words, place=place, each_line=read))
        made = [each for each in await self.backups() if each.backup_id == backup_id]
        if not made:
            raise BackupFailed("pgBackRest lists no such backup, though it ended well: try again")
        if made[-1].kind != kind:
            await self.expire(made[-1].label)
            raise BackupFailed("its base was deleted while the incremental backup was made")
        return made[-1]

    async def expire(self, label: str) -> None:
        """Delete a backup with those that need it, and WAL older than the oldest remaining base."""
        found = await self.backups()
        if all(each.label != label for each in found):
            return
        left = sum(each.kind == "base" and each.label != label for each in found)
        words = ["expire", f"--stanza={STANZA}", f"--repo1-retention-full={_ALL}"]
        if left:
            words += [f"--set={label}", f"--repo1-retention-archive={left}"]
        else:  # pgBackRest never deletes the last base, but it does not list one without files
            storage, bucket = self.storage, self.keys.bucket
            for each in found:
                folder = f"{folder_of(self.cluster_id)}backup/{STANZA}/{each.label}/"
                await delete_files(storage, bucket, folder)
        checked(await self.run(*words))

    async def restore(self, label: str, place: ServerPlace) -> None:
        """Write the files of a backup into an empty data folder, without recovery settings."""
        words = "restore", f"--stanza={STANZA}", f"--set={label}", "--type=none"
        checked(await self.run(*words, place=place, writes=True))
        (place.data / "recovery.signal").unlink(missing_ok=True)

    def _config(self, port: int) -> str:
        bucket, session = self.keys
        own = {
            "repo1-path": "/" + folder_of(self.cluster_id).rstrip("/"),
            "repo1-s3-bucket": bucket.name,
            "repo1-s3-endpoint": self.bridge.endpoint.name,
            "repo1-s3-region": bucket.region,
            "repo1-s3-key": session.access_key_id,
            "repo1-s3-key-secret": session.secret_access_key,
            "repo1-s3-token": session.session_token,
            "repo1-storage-host": NAME,
            "repo1-storage-port": str(port),
            "repo1-storage-ca-file": _ROOTS,
        }
        lines = "".join(f"{name}={value}\n" for name, value in own.items())
        return f"[global]\n{_OPTIONS}{lines}"


@dataclass(slots=True)
class Repositories:
    """The repositories of all clusters of this machine."""

    access: BucketAccess
    bridge: Bridge
    folder: Path
    """The folder of lock files: one for each repository, held while the repository is changed."""

    async def shared(self, target: BackupTarget) -> BackupRepository:
        """Return a repository for reading and for pushing WAL, with shared keys."""
        return self._repository(target, await self.access.shared_keys(target))

    @asynccontextmanager
    async def opened(self, target: BackupTarget, name: str) -> AsyncIterator[BackupRepository]:
        """Open a repository with keys of its own session `name`, which ends with the block."""
        async with self.access.keys(target, name, KEYS_SECONDS) as keys:
            yield self._repository(target, keys)

    @asynccontextmanager
    async def changing(self, target: BackupTarget) -> AsyncIterator[BackupRepository]:
        """Open a repository exclusively, to make or delete backups.

        A run that a killed service has left holds the lock until the kernel has ended that run.
        Raise `BackupFailed` if another run holds the lock for 20 seconds.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(
            self.folder / target.cluster_id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            await _locked(lock)
            async with self.opened(target, f"{target.cluster_id}-run") as repository:
                yield replace(repository, lock=lock)
        finally:
            os.close(lock)

    def _repository(self, target: BackupTarget, keys: Keys) -> BackupRepository:
        return BackupRepository(
            cluster_id=target.cluster_id, keys=keys, storage=self.access.storage, bridge=self.bridge
        )


def program() -> str:
    """Return the path of pgBackRest, or raise `BackupProgramMissing`."""
    return require("pgbackrest", "pgbackrest")


def checked(ended: ProgramResult) -> None:
    """Raise `BackupFailed`, with the last lines of the output, if a run failed."""
    if ended.status != 0:
        words = ended.said or f"its exit status is {ended.status}"
        raise BackupFailed(f"pgBackRest failed: {words}")


async def _locked(lock: int) -> None:
    for _ in range(_ENDING_SECONDS * 10):
        with suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await asyncio.sleep(0.1)
    raise BackupFailed("another run of pgBackRest works on this cluster: try again")


def _refuse_links(data: Path) -> None:
    """Raise `BackupFailed` if a data folder contains a link, since pgBackRest would follow it.

    An owner cannot make links, but a compromised server can.
    """
    for at, folders, files, folder in os.fwalk(data, follow_symlinks=False):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    inside = Path(at, name).relative_to(data)
                    raise BackupFailed(f"the data of the server have a link, {inside}: remove it")


def _of_server(place: ServerPlace) -> str:
    lines = {
        "pg1-path": place.data_inside,
        "pg1-socket-path": _SOCKETS,
        "pg1-port": str(place.port),
        "pg1-user": SUPERUSER,
    }
    return f"[{STANZA}]\n" + "".join(f"{name}={value}\n" for name, value in lines.items())


def _statuses(stanza: _Stanza) -> Sequence[_Status]:
    return [each.status for each in stanza.repo]


def _listed(found: _Backup) -> ListedBackup | None:
    """Convert a backup in `info`; return None if its label does not follow pgBackRest's format."""
    if not _LABEL.fullmatch(found.label):
        return None
    base, incremental, _ = found.label.partition("_")
    return ListedBackup(
        label=found.label,
        kind="incremental" if incremental else "base",
        backup_id=found.annotation.get(_ANNOTATION),
        base_label=base if incremental else None,
        size_bytes=found.info.size,
        stored_bytes=found.info.repository.delta,
        started_at=found.timestamp.start * MICROSECONDS,
        # `stop` is in whole seconds: the backup may include what was written later in that second.
        completed_at=(found.timestamp.stop + 1) * MICROSECONDS,
    )
