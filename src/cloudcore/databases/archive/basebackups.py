"""Backups of registered clusters by pg_basebackup, each one compressed tar in the bucket.

Beside each tar is a note, written last and deleted first: a backup with a note is complete, and a
tar without a note is ignored. The content of a tar is untrusted, as it comes from a server that
runs elsewhere. A restore checks the files against the backup's manifest.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from cloudcore.databases.archive import bucket_files, unpacking
from cloudcore.databases.archive.driver import (
    BackupFailed,
    BackupProgramMissing,
    BackupTarget,
    ListedBackup,
    RegisteredEndpoint,
)
from cloudcore.databases.clusters.endpoints import EndpointUnreachable, addresses_of, conninfo
from cloudcore.databases.servers import postgres
from cloudcore.databases.servers.confinement import ConfinedProgram, User, ended_by, run, started
from cloudcore.errors import PlatformError
from cloudcore.outbound.destinations import Network
from cloudcore.storage.needs import StorageNeeds

_NOBODY: Final = 65534
_ROOTS: Final = "/etc/roots.pem"
_LAST_LINES: Final = 5
_PROGRESS: Final = re.compile(r"\s{0,20}([0-9]{1,15})/([0-9]{1,15}) kB \(([0-9]{1,3})%\)")
_MOST_NOTE: Final = 4096
_ID: Final = re.compile(r"[0-9a-f-]{36}")
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
_Moment = Annotated[int, msgspec.Meta(ge=0, le=1 << 57)]
"""Microseconds since the epoch, up to the year 6536: later times cannot be written as dates."""


class _Note(msgspec.Struct, frozen=True):
    """The note beside the tar of a backup; it is untrusted, like all files in the bucket."""

    size_bytes: _Count
    stored_bytes: _Count
    started_at: _Moment
    completed_at: _Moment


@dataclass(frozen=True, slots=True)
class BaseBackups:
    """Makes, lists, deletes and restores backups of servers that run elsewhere."""

    storage: StorageNeeds
    networks: Sequence[Network]
    """Networks that servers may be in, besides the public internet."""

    async def back_up(
        self, target: BackupTarget, backup_id: str, on_progress: Callable[[int], None]
    ) -> ListedBackup:
        """Back up a server and return the backup; call `on_progress` with the percentage done.

        Raise `BackupFailed` if the server or the bucket fails, `BackupProgramMissing` if this
        machine has no pg_basebackup for the server's version.
        """
        assert target.endpoint is not None
        needs, begun = self.storage, self.storage.clock()
        bucket = await bucket_files.find_bucket(needs, target)
        wanted = await self._command(target.endpoint, program(target.version, "pg_basebackup"))
        try:
            async with started(wanted, stderr=asyncio.subprocess.PIPE) as process:
                sent = _Output(process, on_progress)
                tar = _key(target, backup_id, "tar.gz")
                stored = await bucket_files.store(needs, bucket, tar, sent)
            note = _Note(sent.size_bytes, stored, begun, needs.clock())
            text = bucket_files.text(msgspec.json.encode(note))
            await bucket_files.store(needs, bucket, _key(target, backup_id, "json"), text)
        except PlatformError as error:
            raise BackupFailed(f"the bucket does not take the backup: {error.message}") from None
        return _listed(backup_id, note)

    async def listed(self, target: BackupTarget) -> Sequence[ListedBackup]:
        """Return the backups that have readable notes, oldest first.

        Raise `BackupFailed` if the bucket cannot be read.
        """
        bucket = await bucket_files.find_bucket(self.storage, target)
        found = []
        for entry in await bucket_files.list_files(self.storage, bucket, _folder(target)):
            name, _, kind = entry.key.removeprefix(_folder(target)).partition(".")
            if kind == "json" and _ID.fullmatch(name) and entry.size <= _MOST_NOTE:
                read = bucket_files.read(self.storage, bucket, entry.key)
                try:
                    text = b"".join([part async for part in read])
                except PlatformError as error:
                    raise BackupFailed(f"the bucket cannot be read: {error.message}") from None
                with suppress(msgspec.DecodeError):
                    found.append(_listed(name, msgspec.json.decode(text, type=_Note)))
        return sorted(found, key=lambda each: each.completed_at)

    async def remove(self, target: BackupTarget, labels: Sequence[str]) -> None:
        """Delete the backups with these labels: of each, first the note, then the tar."""
        bucket = await bucket_files.find_bucket(self.storage, target)
        for label in labels:
            for kind in ("json", "tar.gz"):
                await bucket_files.delete_files(self.storage, bucket, _key(target, label, kind))

    async def restore(
        self, target: BackupTarget, into: Path, user: User, label: str, most: int
    ) -> None:
        """Unpack a backup of at most `most` bytes into an empty folder, and check it.

        Raise `BackupFailed` if the backup is larger, cannot be read, or differs from its manifest.
        """
        bucket = await bucket_files.find_bucket(self.storage, target)
        script = "/unpacking.py"
        unpack = ConfinedProgram(
            argv=(_python(), "-I", "-S", script, "/data", str(most)),
            user=user,
            readable={Path(unpacking.__file__): script, **_interpreter()},
            writable={into: "/data"},
        )
        parts = bucket_files.read(self.storage, bucket, _key(target, label, "tar.gz"))
        try:
            # First, as a sandbox that is killed while it starts may not end.
            part = await anext(parts, None)
            async with started(
                unpack, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                with suppress(BrokenPipeError, ConnectionResetError):  # the output says why
                    while part is not None:
                        process.stdin.write(part)
                        await process.stdin.drain()
                        part = await anext(parts, None)
                process.stdin.close()
                with suppress(BrokenPipeError, ConnectionResetError):
                    await process.stdin.wait_closed()
                said = (await process.stdout.read()).decode(errors="replace")
                status = await process.wait()
        except PlatformError as error:
            raise BackupFailed(f"the backup cannot be read: {error.message}") from None
        if status != 0:
            words = said.strip()[-500:] or ended_by(status)
            raise BackupFailed(f"the backup cannot be unpacked: {words}")
        verify = program(target.version, "pg_verifybackup")
        ended = await run(
            ConfinedProgram(argv=(verify, "/data"), user=user, readable={into: "/data"})
        )
        if ended.status != 0:
            raise BackupFailed(f"the backup is not what its manifest says: {ended.said}")

    async def _command(self, endpoint: RegisteredEndpoint, program: str) -> ConfinedProgram:
        """Return the command of pg_basebackup, whose path is `program`, for a server.

        It connects only to the addresses that were checked here. Raise `BackupFailed` if the server
        has no address, or a forbidden one.
        """
        try:
            addresses = await addresses_of(endpoint.host, endpoint.port, self.networks)
        except EndpointUnreachable as error:
            raise BackupFailed(str(error)) from None
        words = conninfo(endpoint, addresses) | {"dbname": "replication", "sslrootcert": _ROOTS}
        files = {} if endpoint.ca is None else {_ROOTS: endpoint.ca.encode()}
        env = {"PGPASSWORD": endpoint.password, "HOME": "/nonexistent"}
        if endpoint.ca is None:
            # An unauthenticated server gets no password that it could use elsewhere (libpq 16).
            env["PGREQUIREAUTH"] = "scram-sha-256"
        dsn = " ".join(f"{name}='{_quoted(value)}'" for name, value in words.items())
        return ConfinedProgram(
            argv=(
                *(program, "--dbname", dsn, "--no-password", "--pgdata=-", "--format=tar"),
                *("--wal-method=fetch", "--compress=client-gzip:1", "--checkpoint=fast"),
                *("--progress", "--label=entrepot"),
            ),
            user=(_NOBODY, _NOBODY) if os.geteuid() == 0 else None,
            files=files,
            env=env,
            has_network=True,
        )


class _Output:
    """Reads the output of pg_basebackup; raises `BackupFailed` at its end if the program failed."""

    def __init__(
        self, process: asyncio.subprocess.Process, on_progress: Callable[[int], None]
    ) -> None:
        self.size_bytes = 0
        self._process = process
        self._on_progress = on_progress
        self._said: deque[str] = deque(maxlen=_LAST_LINES)
        self._following = asyncio.create_task(self._follow())

    async def read(self, count: int, /) -> bytes:
        assert self._process.stdout is not None
        data = await self._process.stdout.read(count)
        if not data:
            await self._following
            if status := await self._process.wait():
                if words := ended_by(status):
                    self._said.append(words)
                raise BackupFailed("pg_basebackup failed: " + "\n".join(self._said))
        return data

    async def _follow(self) -> None:
        """Read standard error to its end: report the progress, and keep the last other lines."""
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            text = line.decode(errors="replace").rstrip()
            found = _PROGRESS.match(text)
            if found is None:
                self._said.append(text[:500])
                continue
            self.size_bytes = int(found[2]) * 1024
            self._on_progress(int(found[3]))


def program(version: int, name: str) -> str:
    """Return the path of a PostgreSQL program of at least this major version.

    Raise `BackupProgramMissing` if this machine has none.
    """
    found = [(int(each.name), each) for each in postgres.PROGRAMS.glob("[0-9][0-9]")]
    for major, folder in sorted(found):
        path = folder / "bin" / name
        if major >= version and path.exists():
            return str(path)
    raise BackupProgramMissing(
        f"this machine has no {name} of PostgreSQL {version} or newer: its operator installs the"
        f" package postgresql-{version}"
    )


def _interpreter() -> dict[Path, str]:
    """Map Python's installation folder to its path in the sandbox; empty if it is in ``/usr``."""
    prefix = Path(sys.base_prefix)
    return {} if prefix.is_relative_to("/usr") else {prefix: str(prefix)}


def _python() -> str:
    return str(Path(sys.executable).resolve())


def _folder(target: BackupTarget) -> str:
    return f"{bucket_files.folder_of(target.cluster_id)}base/"


def _key(target: BackupTarget, label: str, kind: str) -> str:
    return f"{_folder(target)}{label}.{kind}"


def _quoted(value: str) -> str:
    """Return a value quoted for a connection string (libpq, 34.1.1.1)."""
    return value.replace("\\", "\\\\").replace("'", "\\'")


def _listed(label: str, note: _Note) -> ListedBackup:
    return ListedBackup(label, "base", label, None, **msgspec.structs.asdict(note))
