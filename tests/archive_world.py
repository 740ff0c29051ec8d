"""A served install, a PostgreSQL of its own user, and what makes its backups, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, Literal

import boto3
import psycopg
from botocore.config import Config

from cloudcore.account_rows import find_account
from cloudcore.certificate import authority
from cloudcore.certificate.authority import AuthorityUrls
from cloudcore.clock import uuid7
from cloudcore.databases.archive.bucket_archive import BucketArchive, Places
from cloudcore.databases.archive.bucket_files import folder_of, list_files
from cloudcore.databases.archive.driver import (
    BackupTarget,
    Recovery,
    RegisteredEndpoint,
    archive_command,
)
from cloudcore.databases.archive.pgbackrest import ServerPlace
from cloudcore.databases.archive.s3_bridge import Bridge, S3Address
from cloudcore.databases.archive.wal import has_files
from cloudcore.databases.needs import DatabaseNeeds, ServerCertificate
from cloudcore.databases.servers.driver import SUPERUSER, ServerSpec
from cloudcore.db.base import Connection
from cloudcore.iam.service_roles import SERVICE_ROLES, RoleSession, ServiceRoles
from cloudcore.key_pairs import key_pem, new_private_key
from cloudcore.storage import buckets
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.family import STORAGE
from cloudcore.storage.needs import StorageNeeds
from registry.composition.main import Registry
from registry.composition.serve import SERVE
from registry.settings.settings import Settings
from tests.certificates import self_signed
from tests.entrepot import copied_install
from tests.live import start_registry
from tests.loaded import start_worker
from tests.postgresql import UNPRIVILEGED, free_port, run, server_programs

SPOOL_FILES: Final = 8
"""That wait, in these tests."""
Boto = Any
"""boto3's clients have no types."""
PASSWORD: Final = "o'neill \\ s3cret"
"""Of the role that copies the server from elsewhere, over TLS alone."""
_ACCESS: Final = f"""\
local all {SUPERUSER} trust
hostssl replication,postgres copier 127.0.0.1/32 scram-sha-256
"""


def runs_of(program: str, above: int) -> list[int]:
    """Return the processes of a program that a process has begun, directly or not."""
    parents, named = {}, []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, fields = (each / "stat").read_text().rsplit(")", 1)
            parents[int(each.name)] = int(fields.split()[1])
            if name.endswith(f"({program}"):
                named.append(int(each.name))

    def is_below(process: int) -> bool:
        while process > 1 and process != above:
            process = parents.get(process, 0)
        return process == above

    return [each for each in named if is_below(each)]


class Server:
    """A PostgreSQL that is reached by its socket and over TLS, and archives into its spool."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        """Keep all files in a folder, which is made; `programs` are not those of the machine."""
        self.folder = folder
        self.data, self.sockets, self.spool = folder / "data", folder / "sockets", folder / "spool"
        self.port = free_port()
        folder.mkdir(mode=0o711, parents=True)
        self.ca = self_signed(folder, "db.example.com")[0].read_text()
        for name in ("certificate.pem", "key.pem"):
            shutil.chown(folder / name, UNPRIVILEGED, UNPRIVILEGED)
            (folder / name).chmod(0o600)
        for each in (self.data, self.sockets, self.spool):
            each.mkdir(mode=0o700)
            shutil.chown(each, UNPRIVILEGED, UNPRIVILEGED)
        self._programs = programs or server_programs()
        found = pwd.getpwnam(UNPRIVILEGED)
        self.user = found.pw_uid, found.pw_gid

    @property
    def place(self) -> ServerPlace:
        return ServerPlace(self.data, self.user, self.sockets, self.port, str(self.data))

    def make(self, *, has_checksums: bool = True) -> None:
        """Make an empty cluster."""
        self._run(
            *("initdb", "--pgdata", self.data, "--username", SUPERUSER, "--auth", "trust"),
            *(
                "--locale",
                "C",
                "--encoding",
                "UTF8",
                *(("--data-checksums",) if has_checksums else ()),
                "--no-sync",
                "--wal-segsize=1",
            ),
        )
        self.configure(archives=True)

    def configure(self, *, archives: bool, more: str = "") -> None:
        """Replace what a restore has left of the settings."""
        (self.data / "postgresql.auto.conf").write_text("")
        (self.data / "pg_hba.conf").write_text(_ACCESS)
        (self.data / "postgresql.conf").write_text(
            f"listen_addresses = '127.0.0.1,127.0.0.2'\nport = {self.port}\nssl = on\n"
            f"ssl_cert_file = '{self.folder}/certificate.pem'\n"
            f"ssl_key_file = '{self.folder}/key.pem'\nunix_socket_directories = '{self.sockets}'\n"
            f"wal_level = replica\nmin_wal_size = 8MB\nfsync = off\n"
            f"archive_mode = {'on' if archives else 'off'}\n"
            f"archive_command = '{archive_command(str(self.spool), SPOOL_FILES)}'\n{more}"
        )

    def own(self, name: str, text: str = "") -> None:
        """Write a file of the server's into its data folder."""
        (self.data / name).write_text(text)
        shutil.chown(self.data / name, UNPRIVILEGED, UNPRIVILEGED)

    def start(self) -> None:
        log = self.sockets / "log"
        try:
            self._run("pg_ctl", "--pgdata", self.data, "--wait", "--log", log, "start")
        except AssertionError as error:
            raise AssertionError(log.read_text()) from error

    def is_up(self) -> bool:
        """Return True once it has recovered, and takes changes."""
        try:
            return self.sql("SELECT pg_is_in_recovery()") == [(False,)]
        except psycopg.OperationalError:
            return False

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "--pgdata", self.data, "--wait", "--mode", mode, "stop")

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement; return its rows."""
        with psycopg.connect(
            f"host={self.sockets} port={self.port} user={SUPERUSER} dbname=postgres",
            autocommit=True,
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *words: str | Path) -> None:
        run(self._programs / program, *words, account=UNPRIVILEGED)


class OwnAuthority:
    """Issues certificates of a root that nobody knows."""

    async def issue(self, names: Sequence[str]) -> ServerCertificate:
        now = time.time_ns() // 1000
        places = AuthorityUrls("http://localhost/certificate", "http://localhost/list")
        root = authority.new_root("outage", now)
        issuing = authority.new_issuing(root, "outage", places, now)
        key = new_private_key("ecdsa-p256")
        made = authority.issue(issuing, list(names), key.public_key(), places, now)
        chain = authority.pem(made) + authority.pem(issuing.certificate)
        roots = authority.pem(root.certificate)
        return ServerCertificate(chain, key_pem(key).decode(), roots)


@dataclass
class ArchiveWorld:
    """What the tests of one file share."""

    folder: Path
    s3_port: int
    needs: StorageNeeds
    roles: ServiceRoles
    archives: BucketArchive
    account_id: str
    bucket: Bucket

    def target(self, endpoint: RegisteredEndpoint | None = None) -> BackupTarget:
        """Return a cluster of its own: a managed one, or one that is registered."""
        kind: Literal["managed", "registered"] = "managed" if endpoint is None else "registered"
        made = uuid7(self.needs.clock())
        return BackupTarget(made, self.account_id, 15, self.bucket.id, kind, endpoint)

    def boto(self, session: RoleSession) -> Boto:
        """Return a client of the S3 endpoint with the keys of a session."""
        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.s3_port}",
            aws_access_key_id=session.access_key_id,
            aws_secret_access_key=session.secret_access_key,
            aws_session_token=session.session_token,
            region_name="local",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def archives_at(self, port: int, places: Places) -> tuple[BucketArchive, Bridge]:
        """Return what looks for the S3 endpoint at another port."""
        bridge = Bridge(S3Address("127.0.0.1", port, "localhost", None))
        return BucketArchive(
            self.needs, self.roles, bridge, self.folder / "archive", places
        ), bridge

    @asynccontextmanager
    async def back_up_elsewhere(
        self, target: BackupTarget, server: Server, backup_id: str = "killed"
    ) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
        """Begin a backup by another service, which is killed at the end of the block.

        Return its process, and what it prints: a percentage a line.
        """
        order = {
            "data": str(self.folder / "install"),
            "folder": str(self.folder / "archive"),
            "s3_port": self.s3_port,
            "place": [
                *(str(server.data), server.user, str(server.sockets), server.port),
                str(server.data),
            ],
            "target": target,
            "backup_id": backup_id,
        }
        worker = start_worker("tests.archive_worker", json.dumps(order))
        printed = asyncio.StreamReader()
        reading, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(printed), worker.stdout
        )
        try:
            yield worker.process.pid, printed
        finally:
            worker.process.kill()
            worker.process.wait()
            reading.close()

    async def wal_in(self, target: BackupTarget) -> list[str]:
        """Return the WAL segments that the bucket has of a cluster, in order."""
        names = [key.rpartition("/")[2] for key in await self.keys(target)]
        return sorted(name[:24] for name in names if re.match(r"[0-9A-F]{24}-", name))

    async def keys(self, target: BackupTarget) -> list[str]:
        """Return the keys of all that the bucket has of a cluster."""
        found = await list_files(self.needs, self.bucket, folder_of(target.cluster_id))
        return [each.key for each in found]


@asynccontextmanager
async def archiving(
    world: ArchiveWorld, target: BackupTarget, server: Server
) -> AsyncIterator[None]:
    """Push WAL all the while, as the watch of a machine does."""

    async def push() -> None:
        while True:
            await world.archives.push_wal(target, server.spool)
            await asyncio.sleep(0.05)

    pushing = asyncio.create_task(push())
    try:
        yield
    finally:
        pushing.cancel()
        await asyncio.gather(pushing, return_exceptions=True)


async def push_all(world: ArchiveWorld, target: BackupTarget, server: Server) -> None:
    """Have all WAL until now in the bucket."""
    server.sql("SELECT pg_logical_emit_message(true, 'tests', 'so that there is some')")
    (found,) = server.sql("SELECT pg_walfile_name(pg_switch_wal())")
    while True:
        server.sql("SELECT pg_reload_conf()")  # after failures, the archiver rests for a minute
        (last,) = server.sql("SELECT coalesce(last_archived_wal, '') FROM pg_stat_archiver")
        is_all = last >= found and not has_files(server.spool)
        assert await world.archives.push_wal(target, server.spool) is None
        if is_all:
            return
        await asyncio.sleep(0.02)


@asynccontextmanager
async def killing(program: str, word: str) -> AsyncIterator[None]:
    """Kill a program with a word among its arguments, as soon as it runs for us in the block."""

    def is_meant(process: int) -> bool:
        with contextlib.suppress(OSError):
            return word.encode() in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        return False

    async def kill() -> None:
        while True:
            for each in filter(is_meant, runs_of(program, os.getpid())):
                with contextlib.suppress(ProcessLookupError):
                    return os.kill(each, signal.SIGKILL)
            await asyncio.sleep(0.005)

    task = asyncio.create_task(kill())
    try:
        yield
        await task
    finally:
        task.cancel()


async def restored_into(
    world: ArchiveWorld, target: BackupTarget, into: Path, server: Server, label: str
) -> Recovery:
    """Restore a backup into a folder, without WAL."""
    return await world.archives.restore(
        target, into, server.user, label=label, target_time=None, max_bytes=1 << 30
    )


def registered(server: Server, **fields: str) -> RegisteredEndpoint:
    """Return the server as one that runs elsewhere."""
    made = RegisteredEndpoint("127.0.0.1", server.port, "copier", PASSWORD, server.ca)
    return made._replace(**fields)  # type: ignore[arg-type] # of texts


@asynccontextmanager
async def open_archive_world(folder: Path, places: Places) -> AsyncIterator[ArchiveWorld]:
    """Serve an install with an S3 endpoint, and open its database in this process too."""
    data = folder / "install"
    copied_install(data)
    port = free_port()
    registry = start_registry(data, "--s3-port", str(port), command="serve")
    try:
        async with Registry(Settings(data=data), SERVE).open_planes() as (opening, _):
            needs = await opening.needs_of(STORAGE)
            account_id = await needs.database.read(_account)
            now = needs.clock()
            made = Bucket(
                id=uuid7(now),
                account_id=account_id,
                region="local",
                name="backups",
                created_at=now,
                updated_at=now,
            )
            bucket = await needs.database.write(buckets.create_bucket, made)
            roles = (await opening.get(SERVICE_ROLES))("database")
            bridge = Bridge(S3Address("127.0.0.1", port, "localhost", None))
            loopback = [ip_network("127.0.0.0/8")]
            archives = BucketArchive(needs, roles, bridge, folder / "archive", places, loopback)
            try:
                yield ArchiveWorld(folder, port, needs, roles, archives, account_id, bucket)
            finally:
                await bridge.close()
    finally:
        status = registry.stop()
    assert status == 0, registry.log
    assert "unexpected failure" not in registry.log, registry.log


def _account(tx: Connection) -> str:
    found = find_account(tx, "acme")
    assert found is not None
    return found


async def start_restored(needs: DatabaseNeeds, spec: ServerSpec) -> None:
    """Start a server that was restored, as its cluster's work does."""
    assert needs.servers is not None
    issued = await needs.authority.issue([needs.terms.address])
    await needs.servers.reload_certificate(spec, issued.chain_pem, issued.key_pem)
    await needs.servers.start(spec)
