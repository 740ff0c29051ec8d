"""Database clusters over a database, with a machine whose servers are written down or run.

Rows, jobs and passwords are real. The written machine may end the process at whatever is done to
it, and at whatever is stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cloudcore.clock import uuid7
from cloudcore.databases.archive.driver import BackupTarget, ListedBackup
from cloudcore.databases.backups.workflow import BACKUP_WORK
from cloudcore.databases.clusters import clusters
from cloudcore.databases.clusters.cluster import Cluster, check_cluster
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.clusters.states import seal_password
from cloudcore.databases.clusters.workflow import WORK
from cloudcore.databases.needs import DatabaseNeeds, DatabaseTerms, ServerCertificate
from cloudcore.databases.servers.driver import ServerFailed, ServerSpec, ServerState
from cloudcore.events import NO_EVENTS, Events
from cloudcore.identity.rows.accounts import Account
from cloudcore.jobs.kinds import JobKind
from cloudcore.nodes import rows as node_rows
from cloudcore.nodes.node import Node
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.tables import BUCKET_ROWS
from tests.dying import DyingDatabase
from tests.integration.oauth_world import World as Identity
from tests.worked_world import NODE, Death, WorkedWorld, may_all

PASSWORD: Final = "given-to-the-owner"
TERMS: Final = DatabaseTerms(first_port=20_000, last_port=20_003)


@dataclass
class WrittenServers:
    """What there is of servers on a machine, and what was done to it."""

    death: Death
    versions: Sequence[int] = (14, 15)
    has: dict[str, ServerSpec] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    passwords: dict[str, str] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    set_aside_ids: list[str] = field(default_factory=list)
    fails: str = ""
    """Words with which a start fails."""
    sizes: dict[str, int] = field(default_factory=dict)
    certified: dict[str, int] = field(default_factory=dict)
    """When a server got its certificate, if not in the far future."""
    is_buried: bool = False

    def check(self) -> None:
        pass

    async def create(self, spec: ServerSpec) -> None:
        self.death.come_to("before create")
        if spec.id not in self.has:
            self.created.append(spec.id)
        self.has[spec.id] = spec
        self.death.come_to("after create")

    async def start(self, spec: ServerSpec) -> None:
        self.death.come_to("before start")
        if self.fails:
            raise ServerFailed(self.fails)
        assert self.has[spec.id] == spec
        self.running.add(spec.id)
        self.death.come_to("after start")

    async def stop(self, server_id: str) -> None:
        self.death.come_to("before stop")
        self.running.discard(server_id)
        self.death.come_to("after stop")

    async def remove(self, server_id: str, *, at_once: bool = False) -> None:
        self.death.come_to("before remove")
        assert not at_once
        self.running.discard(server_id)
        self.has.pop(server_id, None)
        self.death.come_to("after remove")

    async def set_aside(self, server_id: str) -> bool:
        await self.remove(server_id)
        self.set_aside_ids.append(server_id)
        return True

    @asynccontextmanager
    async def held(self, server_id: str) -> AsyncIterator[None]:
        yield

    async def switch_wal(self, spec: ServerSpec) -> None:
        pass

    async def set_password(self, spec: ServerSpec, username: str, password: str) -> None:
        self.death.come_to("before password")
        assert (username, spec.id in self.running) == ("admin", True)
        self.passwords[spec.id] = password
        self.death.come_to("after password")

    async def reload_certificate(self, spec: ServerSpec, chain_pem: str, key_pem: str) -> None:
        assert (spec.id in self.has, chain_pem, key_pem) == (True, "CHAIN", "KEY")
        self.certified.pop(spec.id, None)

    async def seen(self) -> Mapping[str, ServerState]:
        return {
            each: ServerState(
                "running" if each in self.running else "stopped",
                "" if each in self.running else "FATAL: it broke",
                self.sizes.get(each, 0),
                self.certified.get(each, 2**60),
            )
            for each in self.has
        }

    async def delete_expired(self) -> None:
        self.is_buried = True


class WrittenAuthority:
    """Issues what is no certificate."""

    async def issue(self, names: Sequence[str]) -> ServerCertificate:
        assert names == ["127.0.0.1", NODE]
        return ServerCertificate("CHAIN", "KEY", "ROOT")


class EmptyArchive:
    """Has no backups."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    async def listed(self, _target: BackupTarget) -> Sequence[ListedBackup]:
        return ()

    async def remove_all(self, target: BackupTarget) -> None:
        self.removed.append(target.cluster_id)

    async def remove(self, _target: BackupTarget, _labels: Sequence[str]) -> None:
        pass


class World(WorkedWorld[Cluster]):
    """Clusters of an account, and the one process that looks after them."""

    def __init__(self, identity: Identity, account: Account) -> None:
        self.machine = WrittenServers(Death())
        self.archive = EmptyArchive()
        self.servers: Any = self.machine
        self.authority: Any = WrittenAuthority()
        self.events: Events = NO_EVENTS
        self.terms = TERMS
        self.folder = Path("/nowhere")
        super().__init__(identity, account, CLUSTERS)

    @property
    def kinds(self) -> list[JobKind]:
        return [WORK.job_kind(self.needs, NODE), BACKUP_WORK.job_kind(self.needs, NODE)]

    def restart(self, servers: object = None, *, is_off: bool = False) -> None:
        self.machine.death = self.death
        identity = self.identity
        database = DyingDatabase(self.database, self.death.come_to_write)
        archive: Any = self.archive
        driver: Any = None if is_off else servers or self.servers
        self.needs = DatabaseNeeds(
            database=database,
            clock=lambda: identity.now,
            new_id=lambda: uuid7(identity.now),
            node=Node(NODE, self.folder),
            servers=driver,
            archive=archive,
            authority=self.authority,
            keyring=identity.keyring,
            events=self.events,
            terms=self.terms,
        )

    async def claim(self, name: str = NODE, *capabilities: str) -> None:
        """Let a machine say that it is there."""
        node = Node(name, self.folder, capabilities or ("databases", "backups"))
        await self.database.write(node_rows.claim, node, f"of-{name}".ljust(36), self.identity.now)

    async def add_bucket(self, name: str = "backups") -> str:
        """Add a bucket, and return its name."""
        await self.database.write(BUCKET_ROWS.add, Bucket(**self.base(), name=name))
        return name

    def new(self, name: str = "shop", password: str = PASSWORD, **fields: Any) -> Cluster:  # noqa: ANN401
        """Return a cluster as a request makes it."""
        base = self.base()
        sized = {"memory_mb": 512, "cpu_millis": 500, "disk_mb": 1024}
        return Cluster(
            **base,
            name=name,
            secret=seal_password(self.identity.keyring, base["id"], password),
            **({} if "endpoint" in fields else sized) | fields,
        )

    async def create(self, name: str = "shop", **fields: Any) -> Cluster:  # noqa: ANN401
        """Create a cluster, as a request does."""
        return await self.add(self.new(name, **fields))

    async def running(self, name: str = "shop", **fields: Any) -> Cluster:  # noqa: ANN401
        """Create a cluster, and let its server run; return it as it was made."""
        made = await self.create(name, **fields)
        await self.settle(2)
        return made

    async def add(self, new: Cluster) -> Cluster:
        """Store a new cluster, as a request does."""
        new = check_cluster(new, None, self.identity.now)
        return await self.database.write(clusters.create, new, self.terms, may_all)

    async def want(self, cluster: Cluster, *, is_wanted: bool) -> Cluster:
        """Start or stop a cluster, as a request does."""
        now = self.identity.now
        return await self.database.write(
            lambda tx: clusters.set_wanted(tx, cluster, now, is_wanted=is_wanted)
        )

    async def reset(self, cluster: Cluster, password: str) -> None:
        """Give the owner another password, as a request does."""
        sealed = seal_password(self.identity.keyring, cluster.id, password)
        await self.database.write(clusters.reset_password, cluster, sealed, self.identity.now)

    async def delete(self, cluster: Cluster, *, is_cascade: bool = False) -> None:
        """Delete a cluster, as a request does."""
        now = self.identity.now
        await self.database.write(
            lambda tx: clusters.delete(tx, cluster, now, is_cascade=is_cascade)
        )


async def open_world(identity: Identity) -> World:
    """Return a world of the first account, whose machine is there."""
    made = World(identity, await identity.add_account("acme"))
    await made.claim()
    return made
