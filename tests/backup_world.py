"""Clusters and their backups over a database, with an archive and servers in memory.

What the archive and the servers have outlives each process that the test lets die.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal, cast

import httpx

from cloudcore.audit.log import AuditLog
from cloudcore.clock import uuid7
from cloudcore.databases.archive.driver import (
    BackupFailed,
    BackupKind,
    BackupProgramMissing,
    BackupTarget,
    ListedBackup,
    Recovery,
)
from cloudcore.databases.backups import schedules
from cloudcore.databases.backups.restore import TOO_EARLY
from cloudcore.databases.backups.workflow import BACKUP_WORK
from cloudcore.databases.clusters.cluster import Cluster, Endpoint, Retention
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.clusters.states import seal_password
from cloudcore.databases.clusters.workflow import WORK
from cloudcore.databases.family import DATABASES
from cloudcore.databases.needs import DatabaseNeeds, DatabaseTerms, ServerCertificate
from cloudcore.databases.servers.driver import (
    Proof,
    ServerFailed,
    ServerPaths,
    ServerSpec,
    ServerState,
)
from cloudcore.db.base import Connection, Database
from cloudcore.events import Events
from cloudcore.jobs.kinds import JobKind
from cloudcore.keyring import Keyring
from cloudcore.nodes.node import Node
from cloudcore.nodes.rows import claim
from cloudcore.outbound.destinations import Network
from cloudcore.web.app import ControlPlane, Routes, family_routes
from registry.composition.families import FAMILIES
from tests.control_plane import ACCOUNT, OTHER_ACCOUNT, plane, send
from tests.jobs import Clock, run_due, until
from tests.kms_world import add_account

NODE: Final = "machine-1"
BUCKET: Final = "0189c000-0000-7000-8000-00000000000b"
SIZE: Final = 3_000_000


@dataclass
class MemoryArchive:
    """Backups in memory, which end when the test says so."""

    clock: Clock
    backups: dict[str, list[ListedBackup]] = field(default_factory=dict)
    """By the id of the cluster."""
    calls: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    """Of the next runs and deletions, one each."""
    missing: str = ""
    """What `check` does not find."""
    running: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: int = 0
    most_at_once: int = 0
    told: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.may_end.set()

    def check(self, target: BackupTarget, kind: BackupKind = "base") -> None:
        if self.missing:
            raise BackupProgramMissing(self.missing)

    async def back_up(
        self,
        target: BackupTarget,
        backup_id: str,
        kind: BackupKind,
        on_progress: Callable[[int], None],
    ) -> ListedBackup:
        self.calls.append(f"{kind} {backup_id}")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            for percent in self.told:
                on_progress(percent)
            self.running.set()
            await self.may_end.wait()
            if self.failures:
                raise self.failures.pop(0)
            made = self.finish(target.cluster_id, backup_id, kind)
        finally:
            self.at_once -= 1
        return made

    def finish(self, cluster_id: str, backup_id: str, kind: BackupKind) -> ListedBackup:
        """Have a backup whole, as the program does whether or not anybody waits for it."""
        found = self.backups.setdefault(cluster_id, [])
        self.clock.pass_seconds(1)
        base = next((each.label for each in reversed(found) if each.kind == "base"), None)
        label = f"F{self.clock.now}"
        if kind == "incremental":
            if base is None:
                raise BackupFailed("no prior backup exists")
            label = f"{base}_I{self.clock.now}"
        base_label = base if kind == "incremental" else None
        ended = self.clock.now
        made = ListedBackup(label, kind, backup_id, base_label, SIZE, SIZE // 3, ended - 1, ended)
        found.append(made)
        return made

    async def listed(self, target: BackupTarget) -> Sequence[ListedBackup]:
        return list(self.backups.get(target.cluster_id, ()))

    async def remove(self, target: BackupTarget, labels: Sequence[str]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        for label in labels:
            self.calls.append(f"remove {label}")
            self.backups[target.cluster_id] = [
                each
                for each in self.backups.get(target.cluster_id, ())
                if each.label != label and each.base_label != label
            ]

    async def remove_all(self, target: BackupTarget) -> None:
        self.backups.pop(target.cluster_id, None)

    async def restore(
        self,
        target: BackupTarget,
        into: Path,
        user: tuple[int, int] | None,
        *,
        label: str,
        target_time: int | None,
        max_bytes: int,
    ) -> Recovery:
        if label not in [each.label for each in self.backups.get(target.cluster_id, ())]:
            raise BackupFailed("the bucket has no such backup")
        if self.failures:
            raise self.failures.pop(0)
        self.calls.append(f"restore {label} {target_time}")
        return Recovery(target_time, uses_archive=target_time is not None)

    @asynccontextmanager
    async def serving_wal(
        self,
        target: BackupTarget,
        data: Path,
        spool: Path,
        user: tuple[int, int] | None,
        *,
        waits: bool = False,
    ) -> AsyncIterator[None]:
        yield

    async def push_wal(self, target: BackupTarget, spool: Path) -> str | None:
        return None


@dataclass
class MemoryServers:
    """Servers in memory: what each has, and if it runs."""

    servers: dict[str, Literal["data", "restored", "running"]] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    recovering: asyncio.Event = field(default_factory=asyncio.Event)
    may_recover: asyncio.Event = field(default_factory=asyncio.Event)
    failures: list[ServerFailed] = field(default_factory=list)
    """Of the next recoveries, one each."""
    recovered: list[Recovery] = field(default_factory=list)
    switched: list[str] = field(default_factory=list)
    has_later_wal: bool = True
    """The archive has WAL of a commit after the moment that a server is restored to."""
    bad_pages: bool = False
    proof: Proof = "checksums"
    versions: Sequence[int] = (15,)

    def __post_init__(self) -> None:
        self.may_recover.set()

    def check(self) -> None:
        pass

    @asynccontextmanager
    async def held(self, server_id: str) -> AsyncIterator[None]:
        yield

    async def create(self, spec: ServerSpec) -> None:
        self.servers[spec.id] = "data"

    def restoring(self, spec: ServerSpec) -> Path:
        return Path("/nowhere")

    async def adopt_restored(self, spec: ServerSpec) -> None:
        self.servers[spec.id] = "restored"

    async def recover(self, spec: ServerSpec, recovery: Recovery) -> None:
        self.recovering.set()
        await self.may_recover.wait()
        if self.failures:
            raise self.failures.pop(0)
        if recovery.uses_archive and not (self.has_later_wal or recovery.is_to_end):
            raise ServerFailed(f"FATAL:  {TOO_EARLY}")
        self.servers[spec.id] = "data"
        self.recovered.append(recovery)

    async def switch_wal(self, spec: ServerSpec) -> None:
        self.switched.append(spec.id)

    async def start(self, spec: ServerSpec) -> None:
        self.servers[spec.id] = "running"

    async def stop(self, server_id: str) -> None:
        self.servers[server_id] = "data"

    async def check_data(self, spec: ServerSpec) -> Proof:
        assert self.servers[spec.id] == "data", "it was not restored"
        if self.bad_pages:
            raise ServerFailed("checksum verification failed in file base/5/1259")
        return self.proof

    async def remove(self, server_id: str, *, at_once: bool = False) -> None:
        self.servers.pop(server_id, None)
        self.removed.append(server_id)

    async def set_aside(self, server_id: str) -> bool:
        raise AssertionError("every server has a row")

    async def delete_expired(self) -> None:
        pass

    async def set_password(self, spec: ServerSpec, username: str, password: str) -> None:
        pass

    async def reload_certificate(self, spec: ServerSpec, chain_pem: str, key_pem: str) -> None:
        pass

    async def seen(self) -> Mapping[str, ServerState]:
        return {}

    def paths(self, spec: ServerSpec) -> ServerPaths:
        nowhere = Path("/nowhere")
        return ServerPaths(nowhere, nowhere, nowhere, None)


class MemoryAuthority:
    """Certificates of nobody."""

    async def issue(self, names: Sequence[str]) -> ServerCertificate:
        return ServerCertificate("chain", "key", "ca")


@dataclass
class BackupWorld:
    """Two accounts, and what makes and keeps backups."""

    database: Database
    needs: DatabaseNeeds
    clock: Clock
    app: ControlPlane
    archive: MemoryArchive
    servers: MemoryServers

    async def ask(
        self,
        method: str,
        path: str = "",
        body: object = None,
        *,
        token: str = "writer",
        key: str = "",
    ) -> httpx.Response:
        """Send a request for clusters."""
        return await send(
            self.app, method, f"/v1/clusters{path}", body, token=token, key=key or None
        )

    async def add_cluster(self, name: str = "shop", **changes: object) -> Cluster:
        """Insert a cluster that runs."""
        return await self.database.write(partial(_add_cluster, self, name, changes))

    async def back_up(self, cluster: Cluster, kind: str = "base") -> dict[str, Any]:
        """Ask for a backup; return its record."""
        self.clock.pass_seconds(0.01)
        answer = await self.ask("POST", f"/{cluster.id}/backups", {"kind": kind})
        assert answer.status_code == 202, answer.text
        return dict(answer.json()["backup"])

    async def made(self, cluster: Cluster, kind: str = "base") -> dict[str, Any]:
        """Return the record of a new backup that succeeded."""
        asked = await self.back_up(cluster, kind)
        await self.work()
        found = await self.show(asked)
        assert found["status"] == "succeeded", found
        return found

    async def show(self, backup: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a backup as it is now."""
        path = f"/{backup['cluster']['id']}/backups/{backup['id']}"
        answer = await self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["backup"])

    async def until(self, backup: Mapping[str, Any], **fields: object) -> None:
        """Wait until fields of a backup's record are so."""

        async def are_so() -> bool:
            return fields.items() <= (await self.show(backup)).items()

        await until(are_so)

    async def list(self, cluster: Cluster, query: str = "") -> list[dict[str, Any]]:
        """Return the records of the backups of a cluster."""
        answer = await self.ask("GET", f"/{cluster.id}/backups{query}")
        assert answer.status_code == 200, answer.text
        return list(answer.json()["backups"])

    async def delete(self, backup: Mapping[str, Any], query: str = "") -> httpx.Response:
        path = f"/{backup['cluster']['id']}/backups/{backup['id']}{query}"
        return await self.ask("DELETE", path)

    async def needed_by(self, backup: Mapping[str, Any]) -> str:
        """Return which backup another one is not deleted for."""
        refused = await self.delete(backup)
        assert refused.status_code == 409, refused.text
        return str(refused.json()["error"]["params"]["backup"])

    async def cluster(self, seen: Cluster) -> Cluster:
        """Return the row of a cluster as it is now."""
        found = await self.database.read(CLUSTERS.find, ACCOUNT, seen.id)
        assert found is not None
        return found

    @property
    def kinds(self) -> Sequence[JobKind]:
        """Return the kinds of jobs of the machine."""
        return [WORK.job_kind(self.needs, NODE), BACKUP_WORK.job_kind(self.needs, NODE)]

    async def work(self, after: float = 0, times: int = 1) -> None:
        """Let some seconds pass, and the work be done that is due; again and again."""
        for _ in range(times):
            self.clock.pass_seconds(after)
            await run_due(self.database, self.kinds, self.clock)

    async def worked(
        self, backup: Mapping[str, Any], after: float = 0, times: int = 1
    ) -> dict[str, Any]:
        """Let work be done, as `work`; return the record of a backup as it is then."""
        await self.work(after, times)
        return await self.show(backup)

    async def fail(self) -> None:
        """Let the backup that was asked for fail as often as it is tried."""
        self.archive.failures += [BackupFailed("the disk is full")] * 3
        await self.work(after=300, times=4)

    async def take_turns(self) -> None:
        """Look at the schedules, and do what follows."""
        await schedules.request_due_backups(self.needs)
        await self.work()


def _add_cluster(
    world: BackupWorld, name: str, changes: Mapping[str, Any], tx: Connection
) -> Cluster:
    now = world.clock()
    cluster_id = uuid7(now)
    values: dict[str, Any] = {
        "version": 15,
        "bucket": BUCKET,
        "bucket_name": "backups",
        "port": 20_000 + len(CLUSTERS.list(tx, ACCOUNT, "local", ["", ""], "", 99)),
        "host": "127.0.0.1",
        "memory_mb": 256,
        "cpu_millis": 500,
        "disk_mb": 1024,
        "has_data": True,
        "status": "active",
        "applied": 1,
        "node": NODE,
        **changes,
    }
    if values.get("type") == "registered":
        values |= {
            "endpoint": Endpoint("db.example.com", 5432, "postgres", "copier"),
            "secret": seal_password(world.needs.keyring, cluster_id, "secret"),
            "port": None,
        }
    made = Cluster(
        id=cluster_id,
        account_id=ACCOUNT,
        region="local",
        created_at=now,
        updated_at=now,
        name=name,
        **values,
    )
    CLUSTERS.add(tx, made)
    schedules.put(tx, made)
    return made


@cache
def _routes() -> Routes:
    return Routes([family_routes("database", DATABASES.runtime.routes)])


def _furnish(node: Node, now: int, tx: Connection) -> None:
    add_account(tx, ACCOUNT, "acme")
    add_account(tx, OTHER_ACCOUNT, "globex")
    claim(tx, node, uuid7(), now)


@asynccontextmanager
async def open_backups(
    database: Database,
    folder: Path,
    *,
    topics_of: Callable[..., Sequence[str]] = lambda *_: (),
    networks: Sequence[Network] = (),
) -> AsyncIterator[BackupWorld]:
    """Open the world over an empty database."""
    clock = Clock()
    node = Node(NODE, folder, ("databases", "backups"))
    await database.write(partial(_furnish, node, clock()))
    archive, servers, keyring = MemoryArchive(clock), MemoryServers(), Keyring(b"k" * 32)
    needs = DatabaseNeeds(
        database=database,
        clock=clock,
        new_id=lambda: uuid7(clock()),
        node=node,
        servers=cast("Any", servers),
        archive=cast("Any", archive),
        authority=MemoryAuthority(),
        keyring=keyring,
        events=Events(topics_of),
        terms=DatabaseTerms(networks=networks),
    )
    of = _routes(), database, clock, FAMILIES, {"database": needs}
    app, _ = plane(*of, auditor=AuditLog(database), new_id=lambda: uuid7(clock()))
    yield BackupWorld(database, needs, clock, app, archive, servers)


KEEP_TWO: Final = Retention(base_count=2)
