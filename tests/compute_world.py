"""Instance pools over a database, with a machine that is written down instead of run.

All but the machine is real: rows, jobs, networks' addresses, roles and their sessions. The machine
is a list of what runs there; whatever is done to it, and whatever is stored, may end the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

from cloudcore.audit.log import AuditLog
from cloudcore.clock import uuid7
from cloudcore.compute import pools, rows
from cloudcore.compute.driver import InstanceSpec, InstanceState, SandboxFailed
from cloudcore.compute.images import ImageConfig, ImageRefused, ImageRoot, ImageUser
from cloudcore.compute.instance_pool import Instance, InstancePool, check_pool
from cloudcore.compute.needs import ComputeNeeds
from cloudcore.compute.pools import INSTANCE_POOLS, WORK
from cloudcore.compute.reconciler import InstanceReconciler
from cloudcore.db.base import Connection
from cloudcore.events import NO_EVENTS
from cloudcore.identity.rights.service_sessions import SessionsOfService
from cloudcore.identity.rows.accounts import Account
from cloudcore.jobs.kinds import JobKind
from cloudcore.network import rows as network_rows
from cloudcore.network.driver import InterfacePlan
from cloudcore.network.network_interfaces import Interfaces
from cloudcore.network.resources import Subnet, Vpc
from cloudcore.network.vpcs import _add_defaults
from cloudcore.nodes import rows as node_rows
from cloudcore.nodes.node import Node
from cloudcore.resources.resource import Reference
from tests.dying import DyingDatabase
from tests.integration.oauth_world import World as Identity
from tests.worked_world import NODE, Death, WorkedWorld, may_all


@dataclass
class Machine:
    """What there is of instances on a machine, and what was done to it."""

    folder_: Path
    death: Death
    clock: Callable[[], int]
    has: dict[str, InstanceState] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    """Ids of instances by interface."""
    specs: dict[str, InstanceSpec] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    """Each time that a program was let run."""
    fails: dict[str, str] = field(default_factory=dict)
    """Words with which a start fails, by digest of the image."""
    crashes: set[str] = field(default_factory=set)
    """Digests of images whose program ends at once."""
    is_stuck: bool = False
    """What is removed is not."""
    error: Exception | None = None
    """What each start and each removal ends with."""
    grace: list[float] = field(default_factory=list)

    def check(self) -> None:
        pass

    async def start(self, spec: InstanceSpec) -> Path | None:
        self.death.come_to("before start")
        if spec.root.digest in self.fails:
            raise SandboxFailed(self.fails[spec.root.digest])
        if self.error is not None:
            raise self.error
        if self.has.get(spec.id, InstanceState("stopped")).status == "stopped":
            self.has[spec.id] = InstanceState("starting")
            self.folder(spec.id).mkdir(exist_ok=True)
        self.specs[spec.id] = spec
        self.death.come_to("after start")
        return Path("/proc/1/ns/net") if spec.has_network else None

    async def go(self, instance_id: str) -> None:
        self.death.come_to("before go")
        if self.has[instance_id].status == "starting":
            self.has[instance_id] = InstanceState("running", started_at=self.clock())
            self.started.append(instance_id)
            if self.specs[instance_id].root.digest in self.crashes:
                self.crash(instance_id)
        self.death.come_to("after go")

    async def seen(self) -> Mapping[str, InstanceState]:
        return dict(self.has)

    async def stop(self, instance_id: str, grace_seconds: float) -> None:
        self.death.come_to("before stop")
        self.grace.append(grace_seconds)
        if instance_id in self.has:
            self.has[instance_id] = self.has[instance_id]._replace(status="stopped", exit_code=143)
        self.death.come_to("after stop")

    async def remove(self, instance_id: str) -> None:
        self.death.come_to("before remove")
        if self.is_stuck:
            raise SandboxFailed("a process does not end")
        if self.error is not None:
            raise self.error
        self.has.pop(instance_id, None)
        self.death.come_to("after remove")

    def logs(self, instance_id: str, tail_bytes: int) -> bytes:
        return f"of {instance_id}".encode()[-tail_bytes:]

    def folder(self, instance_id: str) -> Path:
        return self.folder_ / instance_id

    def crash(self, instance_id: str, exit_code: int | None = 1) -> None:
        """Let the program of an instance end by itself."""
        self.has[instance_id] = self.has[instance_id]._replace(
            status="stopped", exit_code=exit_code
        )

    # The driver of networks

    async def attach(self, _vpc_id: str, interface: InterfacePlan, _netns: Path) -> None:
        self.death.come_to("before attach")
        self.links[interface.id] = str(interface.address_ipv4)
        self.death.come_to("after attach")

    async def detach(self, _vpc_id: str, interface_id: str) -> None:
        self.death.come_to("before detach")
        self.links.pop(interface_id, None)
        self.death.come_to("after detach")

    def namespace_of(self, _vpc_id: str) -> Path | None:
        return Path("/proc/1/ns/net")


class KnownImages:
    """Images by their references, as they are at the moment."""

    def __init__(self) -> None:
        self.digests = {f"web:{number}": f"sha256:{number:064}" for number in range(1, 6)}
        self.fetched: list[tuple[str | None, str]] = []
        self.kept: list[frozenset[str]] = []
        self.refused: set[str] = set()
        """References that nobody may pull any more."""

    def check(self, reference: str) -> None:
        pass

    async def check_right(self, _account_id: str, _role_id: str | None, reference: str) -> None:
        if reference.partition("@")[0] in self.refused:
            raise ImageRefused(f"nobody may pull {reference}")

    async def fetch(self, account_id: str, role_id: str | None, reference: str) -> ImageRoot:
        await self.check_right(account_id, role_id, reference)
        self.fetched.append((role_id, reference))
        name, _, pinned = reference.partition("@")
        digest = pinned or self.digests.get(name)
        if digest is None:
            raise ImageRefused(f"there is no image {reference}")
        config = ImageConfig(("run",), (), (), "/", ImageUser(0, 0))
        return ImageRoot(digest, (Path("/"),), config)

    async def keep_only(self, digests: Iterable[str]) -> None:
        self.kept.append(frozenset(digests))


class World(WorkedWorld[InstancePool]):
    """Pools of an account, and the one process that looks after them."""

    def __init__(self, identity: Identity, account: Account, folder: Path) -> None:
        self.machine = Machine(folder, Death(), lambda: identity.now)
        self.images = KnownImages()
        self.changed: list[str] = []
        """Pools that load balancers were told of."""
        super().__init__(identity, account, rows.POOLS)

    @property
    def kinds(self) -> list[JobKind]:
        return [WORK.job_kind(self.needs, NODE)]

    def restart(self) -> None:
        self.machine.death = self.death
        database = DyingDatabase(self.database, self.death.come_to_write)
        machine: Any = self.machine  # both drivers in one
        identity = self.identity
        self.needs = ComputeNeeds(
            database=database,
            clock=lambda: identity.now,
            new_id=lambda: uuid7(identity.now),
            node=Node(NODE, self.machine.folder_),
            driver=machine,
            images=self.images,
            interfaces=Interfaces(),
            network=machine,
            roles=SessionsOfService(
                "compute",
                self.database,
                lambda: identity.now,
                uuid7,
                identity.keyring,
                identity.tokens,
                AuditLog(self.database),
            ),
            pool_changed=lambda _tx, _account, pool_id, _now: self.changed.append(pool_id),
            events=NO_EVENTS,
            url="http://registry.test",
        )
        self.reconciler = InstanceReconciler(self.needs, machine)

    async def create(self, name: str = "web", **fields: Any) -> InstancePool:  # noqa: ANN401
        """Create a pool, as a request does."""
        new = InstancePool(**self.base(), name=name, **{"image": "web:1", **fields})
        checked = check_pool(new, None, self.identity.now)
        return await self.database.write(pools.create, checked, self.needs, may_all)

    async def running(self, name: str = "web", **fields: Any) -> InstancePool:  # noqa: ANN401
        """Create a pool, and let its instances be ready."""
        made = await self.create(name, **fields)
        await self.settle(8)
        return made

    async def change(self, pool: InstancePool, **changes: object) -> InstancePool:
        """Change a pool, as a request does."""
        now = self.identity.now
        return await self.database.write(pools.update, pool, changes, self.needs, may_all, now)

    async def delete(self, pool: InstancePool) -> None:
        """Delete a pool, as a request does."""
        await self.database.write(INSTANCE_POOLS.remove, pool, self.identity.now)

    async def look(self, after: float = 1) -> None:
        """Let time pass, and the process look once and do what it finds, with the jobs."""
        await super().look(after)
        async with asyncio.TaskGroup() as group:
            await self.reconciler.look(group)

    async def settle(self, looks: int = 40, after: float = 1) -> None:
        await super().settle(looks, after)

    async def instances(self, pool: InstancePool) -> list[Instance]:
        """Return the instances of a pool as they are stored."""
        of = pool.account_id, pool.id, "", 100
        return [*await self.database.read(rows.list_instances, *of)]

    async def ready(self, pool: InstancePool) -> list[str]:
        """Return the ids of the instances of a pool that are ready."""
        return [each.id for each in await self.instances(pool) if each.is_ready]

    async def add_subnet(self, cidr: str = "10.0.0.0/24") -> str:
        """Add a VPC with a subnet, and return its name."""
        vpc = Vpc(**self.base(), name="vpc", cidr_ipv4="10.0.0.0/16", node=NODE)
        subnet = Subnet(**self.base(), name="subnet", vpc=Reference(vpc.id), cidr_ipv4=cidr)

        def add(tx: Connection) -> None:
            network_rows.VPCS.add(tx, vpc)
            _add_defaults(tx, vpc)
            table = network_rows.main_table(tx, vpc.account_id, vpc.id)
            assert table is not None
            of = Reference(table.id, table.name)
            network_rows.SUBNETS.add(tx, structs.replace(subnet, route_table=of))

        await self.database.write(add)
        return "subnet"

    async def interfaces(self) -> int:
        """Return how many addresses are taken."""
        found = network_rows.INTERFACES
        return await self.database.read(
            found.count, self.account.id, "local", ("",) * len(found.of.filters)
        )


async def open_world(identity: Identity, folder: Path) -> World:
    """Return a machine that runs instances, and an account."""
    node = Node(NODE, folder, ("networks", "instances"))
    far = identity.now + 10**15
    await identity.database.write(node_rows.claim, node, uuid7(), far)
    return World(identity, await identity.add_account("acme"), folder)
