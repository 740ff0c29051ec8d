"""Instance pools over a database, with a machine that is written down instead of run.

All but the machine is real: rows, jobs, networks' addresses, roles and their sessions. The machine
is a list of what runs there; whatever is done to it, and whatever is stored, may end the process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from msgspec import structs

from cloudcore.audit.log import AuditLog
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.compute import pools, rows
from cloudcore.compute.driver import InstanceSpec, SandboxFailed, Seen
from cloudcore.compute.images import ImageConfig, ImageRefused, ImageRoot, ImageUser
from cloudcore.compute.instance_pool import Instance, InstancePool, check_pool
from cloudcore.compute.needs import ComputeNeeds
from cloudcore.compute.pools import INSTANCE_POOLS, WORK
from cloudcore.compute.reconciler import Reconciler
from cloudcore.db.base import Connection, Database
from cloudcore.events import NO_EVENTS
from cloudcore.identity.rights.service_sessions import SessionsOfService
from cloudcore.identity.rows.accounts import Account
from cloudcore.network import rows as network_rows
from cloudcore.network.driver import InterfacePlan
from cloudcore.network.network_interfaces import Interfaces
from cloudcore.network.resources import Subnet, Vpc
from cloudcore.network.vpcs import _furnish
from cloudcore.nodes import rows as node_rows
from cloudcore.nodes.node import Node
from cloudcore.resources.resource import Reference
from tests.integration.oauth_world import World as Identity
from tests.jobs import run_due

P = ParamSpec("P")
T = TypeVar("T")
NODE: Final = "here"


class Died(BaseException):
    """The process was killed."""


class Death:
    """Kills the process when it has come to a place so many times, once at each place."""

    def __init__(self) -> None:
        self.time: int | None = None
        self.times: Counter[str] = Counter()
        self.died: list[str] = []

    def come_to(self, place: str) -> None:
        """Note that the process is at a place; die there if it is time."""
        self.times[place] += 1
        if self.times[place] == self.time:
            self.died.append(place)
            raise Died(place)


class DyingDatabase:
    """A database whose process may die before a change, or when it is stored."""

    def __init__(self, inner: Database, death: Death) -> None:
        self._inner = inner
        self._death = death

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is the inner one's
        return getattr(self._inner, name)

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        name = getattr(change, "__name__", "change")
        self._death.come_to(f"before {name}")
        result = await self._inner.write(change, *args, **kwargs)
        self._death.come_to(f"after {name}")
        return result


@dataclass
class Machine:
    """What there is of instances on a machine, and what was done to it."""

    folder_: Path
    death: Death
    clock: Callable[[], int]
    has: dict[str, Seen] = field(default_factory=dict)
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
        if self.has.get(spec.id, Seen("stopped")).status == "stopped":
            self.has[spec.id] = Seen("starting")
            self.folder(spec.id).mkdir(exist_ok=True)
        self.specs[spec.id] = spec
        self.death.come_to("after start")
        return Path("/proc/1/ns/net") if spec.has_network else None

    async def go(self, instance_id: str) -> None:
        self.death.come_to("before go")
        if self.has[instance_id].status == "starting":
            self.has[instance_id] = Seen("running", started_at=self.clock())
            self.started.append(instance_id)
            if self.specs[instance_id].root.digest in self.crashes:
                self.crash(instance_id)
        self.death.come_to("after go")

    async def seen(self) -> Mapping[str, Seen]:
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


class World:
    """Pools of an account, and the one process that looks after them."""

    def __init__(self, identity: Identity, account: Account, folder: Path) -> None:
        self.identity = identity
        self.account = account
        self.database = identity.database
        self.death = Death()
        self.machine = Machine(folder, self.death, lambda: identity.now)
        self.images = KnownImages()
        self.changed: list[str] = []
        """Pools that load balancers were told of."""
        self.restart()

    def restart(self) -> None:
        """Begin a process that knows nothing of the one before."""
        database: Any = DyingDatabase(self.database, self.death)
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
        self.reconciler = Reconciler(self.needs, machine)

    async def create(self, name: str = "web", **fields: Any) -> InstancePool:  # noqa: ANN401
        """Create a pool, as a request does."""
        now = self.identity.now
        new = InstancePool(
            id=uuid7(now),
            account_id=self.account.id,
            region="local",
            created_at=now,
            updated_at=now,
            name=name,
            **{"image": "web:1", **fields},
        )
        return await self.database.write(
            pools.create, check_pool(new, None, now), self.needs, _may_all
        )

    async def running(self, name: str = "web", **fields: Any) -> InstancePool:  # noqa: ANN401
        """Create a pool, and let its instances be ready."""
        made = await self.create(name, **fields)
        await self.settle(8)
        return made

    async def change(self, pool: InstancePool, **changes: object) -> InstancePool:
        """Change a pool, as a request does."""
        now = self.identity.now
        return await self.database.write(pools.update, pool, changes, self.needs, _may_all, now)

    async def delete(self, pool: InstancePool) -> None:
        """Delete a pool, as a request does."""
        await self.database.write(INSTANCE_POOLS.remove, pool, self.identity.now)

    async def look(self, after: float = 1) -> None:
        """Let time pass, and the process look once and do what it finds, with the jobs."""
        self.identity.now += int(after * MICROSECONDS)
        kind = WORK.job_kind(self.needs, NODE)
        await run_due(self.database, [kind], lambda: self.identity.now)
        async with asyncio.TaskGroup() as group:
            await self.reconciler.look(group)

    async def settle(self, looks: int = 40, after: float = 1) -> None:
        """Let the process look again and again."""
        for _ in range(looks):
            await self.look(after)

    async def pool(self, pool: InstancePool) -> InstancePool | None:
        """Return a pool as it is stored."""
        return await self.database.read(rows.POOLS.find, pool.account_id, pool.id)

    async def found(self, pool: InstancePool) -> InstancePool:
        """Return a pool that is there."""
        found = await self.pool(pool)
        assert found is not None
        return found

    async def status(self, pool: InstancePool) -> str:
        """Return the status of a pool that is there."""
        return (await self.found(pool)).status

    async def codes(self, pool: InstancePool) -> set[str]:
        """Return the codes of a pool's faults."""
        return {each.code for each in (await self.found(pool)).faults}

    async def state(self, pool: InstancePool) -> tuple[str, set[str]]:
        """Return the status of a pool, and the codes of its faults."""
        return await self.status(pool), await self.codes(pool)

    async def instances(self, pool: InstancePool) -> list[Instance]:
        """Return the instances of a pool as they are stored."""
        of = pool.account_id, pool.id, "", 100
        return [*await self.database.read(rows.list_instances, *of)]

    async def ready(self, pool: InstancePool) -> list[str]:
        """Return the ids of the instances of a pool that are ready."""
        return [each.id for each in await self.instances(pool) if each.is_ready]

    async def add_subnet(self, cidr: str = "10.0.0.0/24") -> str:
        """Add a VPC with a subnet, and return its name."""
        now, base = self.identity.now, {"account_id": self.account.id, "region": "local"}
        base |= {"created_at": now, "updated_at": now}  # type: ignore[dict-item]
        vpc = Vpc(**base, id=uuid7(now), name="vpc", cidr_ipv4="10.0.0.0/16", node=NODE)  # type: ignore[arg-type]
        subnet = Subnet(**base, id=uuid7(now), name="subnet", vpc=Reference(vpc.id), cidr_ipv4=cidr)  # type: ignore[arg-type]

        def add(tx: Connection) -> None:
            network_rows.VPCS.add(tx, vpc)
            _furnish(tx, vpc)
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


def _may_all(_action: str) -> Callable[[str], None]:
    return lambda _crn: None


async def open_world(identity: Identity, folder: Path) -> World:
    """Return a machine that runs instances, and an account."""
    node = Node(NODE, folder, ("networks", "instances"))
    far = identity.now + 10**15
    await identity.database.write(node_rows.claim, node, uuid7(), far)
    return World(identity, await identity.add_account("acme"), folder)
