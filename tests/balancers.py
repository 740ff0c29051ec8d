"""Load balancers over a database, on a machine of the test: proxies, networks and pools that note.

What stands of them outside the database is kept in memory, and so outlives each process that the
test lets die.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import httpx

from cloudcore.certificate.certificate import Certificate
from cloudcore.certificate.keys import PrivateKeys
from cloudcore.certificate.needs import Certificates
from cloudcore.certificate.rows import ROWS as CERTIFICATES
from cloudcore.certificate.services import CERTIFICATES as OF_CERTIFICATES
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.errors import NotFound
from cloudcore.events import Events
from cloudcore.iam.service_roles import ServiceRoles
from cloudcore.loadbalancer import rows
from cloudcore.loadbalancer.driver import (
    ProxyFailed,
    ProxyPlan,
    ReplicaMetrics,
    ReplicaState,
    TargetStatus,
)
from cloudcore.loadbalancer.family import LOADBALANCER
from cloudcore.loadbalancer.load_balancer import LoadBalancer
from cloudcore.loadbalancer.needs import LoadBalancerNeeds, Parts
from cloudcore.loadbalancer.rows import ROWS
from cloudcore.loadbalancer.watch import ProxyWatch
from cloudcore.loadbalancer.workflow import WORK
from cloudcore.network import rows as network
from cloudcore.network.driver import NetworkDriver
from cloudcore.network.network_interfaces import Interfaces
from cloudcore.network.resources import RouteTable, SecurityGroup, Subnet, Vpc
from cloudcore.nodes.node import Node
from cloudcore.resource_references import Authorize
from cloudcore.resources.resource import Reference
from cloudcore.web.app import ControlPlane, Routes, family_routes
from registry.composition.families import FAMILIES
from tests.control_plane import ACCOUNT, OTHER_ACCOUNT, TokenBook, plane, send
from tests.jobs import Clock, run_due
from tests.kms_world import add_account

NODE: Final = "machine-1"
POOL: Final = "0189c000-0000-7000-8000-00000000000c"
NAMESPACE: Final = Path("/run/netns/test")
VIPS: Final = "192.0.2.0/29"
"""Six addresses."""


class Instance(NamedTuple):
    """An instance of the pool."""

    instance_id: str
    address: str | None = None
    socket_folder: Path | None = None
    is_ready: bool = True


class Pool(NamedTuple):
    """The pool."""

    id: str = POOL
    name: str = "workers"


@dataclass
class MemoryPools:
    """One pool, with the instances that the test wants."""

    instances: list[Instance] = field(default_factory=list)
    is_deleted: bool = False

    def pool(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        reference: str,
        authorize: Authorize | None = None,
    ) -> Pool:
        if authorize is not None:
            authorize(f"crn:compute:{region}:{account_id}:instance-pool/workers")
        if self.is_deleted or reference not in (POOL, "workers"):
            raise NotFound("there is no such instance pool")
        return Pool()

    def targets(self, tx: Connection, account_id: str, pool_id: str) -> Sequence[Instance]:
        return [] if self.is_deleted else self.instances


@dataclass
class MemoryRoles:
    """Roles, as they are outside the transaction that makes them."""

    roles: dict[str, Mapping[str, object]] = field(default_factory=dict)

    def platform_role(
        self,
        tx: Connection,
        account_id: str,
        name: str,
        policy: Mapping[str, object],
        now: int,
    ) -> str:
        self.roles[name] = policy
        return name[-36:]

    def remove_platform_role(self, tx: Connection, account_id: str, role_id: str) -> None:
        self.roles.pop(f"load-balancer-{role_id}", None)


class Running(NamedTuple):
    """A replica that runs."""

    plan: ProxyPlan
    certificates: Mapping[str, bytes]
    netns: Path | None


@dataclass
class MemoryProxies:
    """Replicas in memory."""

    running: dict[tuple[str, int], Running] = field(default_factory=dict)
    dead: set[tuple[str, int]] = field(default_factory=set)
    states: dict[str, TargetStatus] = field(default_factory=dict)
    """Of targets by id; others are healthy."""
    metrics: dict[int, ReplicaMetrics] = field(default_factory=dict)
    """By number of the replica."""
    failure: Exception | None = None
    calls: list[str] = field(default_factory=list)

    def check(self) -> None:
        pass

    async def apply(
        self,
        plan: ProxyPlan,
        replica: int,
        certificates: Mapping[str, bytes],
        netns: Path | None,
    ) -> None:
        self.calls.append(f"apply {replica}")
        if self.failure is not None:
            raise self.failure
        self.running[plan.balancer_id, replica] = Running(plan, dict(certificates), netns)
        self.dead.discard((plan.balancer_id, replica))

    async def stop(self, balancer_id: str, replica: int) -> None:
        self.calls.append(f"stop {replica}")
        if isinstance(self.failure, ProxyFailed):
            raise self.failure
        self.running.pop((balancer_id, replica), None)
        self.dead.discard((balancer_id, replica))

    async def seen(self, balancer_id: str) -> Sequence[ReplicaState]:
        return [
            ReplicaState(
                number,
                (of, number) not in self.dead,
                {
                    (backend.name, target.id): self.states.get(target.id, "healthy")
                    for backend in one.plan.backends
                    for target in backend.targets
                },
                self.metrics.get(number, ReplicaMetrics()),
            )
            for (of, number), one in sorted(self.running.items())
            if of == balancer_id
        ]

    async def known(self) -> Sequence[str]:
        return sorted({of for of, _ in self.running})


@dataclass
class MemoryNetwork:
    """Which addresses lead to which VPC."""

    vips: dict[str, str] = field(default_factory=dict)
    ruled_by: dict[str, str | None] = field(default_factory=dict)
    """The interface whose groups say what reaches an address; None: everybody does."""
    namespace: Path | None = NAMESPACE
    failure: Exception | None = None

    async def add_vip(self, vpc_id: str, vip: str, interface_id: str | None = None) -> None:
        if self.failure is not None:
            raise self.failure
        self.vips[vip] = vpc_id
        self.ruled_by[vip] = interface_id

    async def remove_vip(self, vpc_id: str, vip: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.vips.pop(vip, None)

    def namespace_of(self, vpc_id: str) -> Path | None:
        return self.namespace


@dataclass
class PlainKeys:
    """Keys of accounts that seal nothing."""

    failure: Exception | None = None

    async def seal(self, account_id: str, secret: bytes, context: str) -> tuple[str, bytes]:
        return uuid7(), secret

    async def open(self, account_id: str, kms_key_id: str, sealed: bytes, context: str) -> bytes:
        if self.failure is not None:
            raise self.failure
        return sealed


@dataclass
class BalancerWorld:
    """Two accounts; `ACCOUNT` has a VPC with a subnet, a certificate and a pool."""

    database: Database
    needs: LoadBalancerNeeds
    clock: Clock
    app: ControlPlane
    tokens: TokenBook
    proxies: MemoryProxies
    network: MemoryNetwork
    pools: MemoryPools
    roles: MemoryRoles
    keys: PlainKeys
    watch: ProxyWatch

    async def ask(
        self, method: str, path: str = "", body: object = None, *, token: str = "writer"
    ) -> httpx.Response:
        """Send a request for load balancers."""
        return await send(self.app, method, f"/v1/load-balancers{path}", body, token=token)

    async def make(self, **changes: object) -> dict[str, Any]:
        """Create a load balancer; return its record."""
        answer = await self.ask("POST", "", wanted(**changes))
        assert answer.status_code == 202, answer.text
        return dict(answer.json()["load_balancer"])

    async def active(self, **changes: object) -> dict[str, Any]:
        """Return the record of a load balancer that serves."""
        made = await self.make(**changes)
        await self.work()
        found = await self.show(made)
        assert found["status"] == "active", found
        return found

    async def show(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a load balancer as it is now."""
        answer = await self.ask("GET", f"/{made['id']}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["load_balancer"])

    async def state(self, made: Mapping[str, Any]) -> tuple[str, list[str]]:
        """Return the status of a load balancer, and the codes of its faults."""
        found = await self.show(made)
        return found["status"], [each["code"] for each in found["faults"]]

    async def worked(self, made: Mapping[str, Any], after: float = 0) -> tuple[str, list[str]]:
        """Let the work be done; return the state of a load balancer then."""
        await self.work(after)
        return await self.state(made)

    async def change(self, made: Mapping[str, Any], **changes: object) -> dict[str, Any]:
        """Change a load balancer; return its record."""
        answer = await self.ask("PATCH", f"/{made['id']}", changes)
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["load_balancer"])

    async def stored(self, made: Mapping[str, Any]) -> LoadBalancer | None:
        """Return the row of a load balancer, or None."""
        return await self.database.read(ROWS.find, ACCOUNT, made["id"])

    async def work(self, after: float = 0) -> None:
        """Let some seconds pass, and the work be done that is due."""
        self.clock.pass_seconds(after)
        kind = WORK.job_kind(cast("Any", self.needs), NODE)
        await run_due(self.database, [kind], self.clock)

    async def look(self, after: float = 2) -> None:
        """Let the machine look at its proxies, and what follows be done."""
        self.clock.pass_seconds(after)
        await self.watch.turn()
        await self.work()


def wanted(**changes: object) -> dict[str, object]:
    """Return a request for a load balancer of HTTP before an address."""
    body = {"name": "front", "subnet": "app", "listeners": [HTTP], "backends": [WEB]}
    return {**body, **changes}


WEB: Final[dict[str, Any]] = {
    "name": "web",
    "protocol": "http",
    "targets": [{"address": "10.0.1.9", "port": 8080}],
}
DB: Final = {"name": "db", "protocol": "tcp", "targets": [{"address": "10.0.1.7", "port": 5432}]}
HTTP: Final[dict[str, Any]] = {"port": 80, "protocol": "http", "backend": "web"}
TCP: Final = {"port": 5432, "protocol": "tcp", "backend": "db"}
HTTPS: Final = {"port": 443, "protocol": "https", "backend": "web", "certificate": "site"}
OF_POOL: Final = {"name": "web", "protocol": "http", "targets": [{"pool": "workers", "port": 8080}]}


@cache
def _routes() -> Routes:
    return Routes([family_routes("loadbalancer", LOADBALANCER.runtime.routes)])


def furnish(tx: Connection, now: int) -> None:
    """Insert the accounts, and what the first of them has."""
    add_account(tx, ACCOUNT, "acme")
    add_account(tx, OTHER_ACCOUNT, "globex")
    for account_id in (ACCOUNT, OTHER_ACCOUNT):
        add_network(tx, account_id, now)
    base: dict[str, Any] = {
        "account_id": ACCOUNT,
        "region": "local",
        "created_at": now,
        "updated_at": now,
    }
    for name in ("site", "other"):
        certificate = Certificate(
            id=uuid7(),
            name=name,
            status="active",
            source="uploaded",
            certificate_pem=f"certificate of {name}\n",
            fingerprint="1" * 64,
            private_key=f"key of {name}\n".encode(),
            kms_key_id=uuid7(),
            expires_at=now + 90 * 24 * 3600 * MICROSECONDS,
            **base,
        )
        CERTIFICATES.add(tx, certificate)


def add_network(tx: Connection, account_id: str, now: int) -> None:
    """Insert a VPC ``net`` of 10.0.0.0/16 with a subnet ``app`` of 10.0.1.0/24."""

    def base() -> dict[str, Any]:
        made = {"account_id": account_id, "created_at": now, "updated_at": now}
        return {**made, "id": uuid7(), "region": "local"}

    vpc = Vpc(name="net", cidr_ipv4="10.0.0.0/16", node=NODE, status="active", **base())
    network.VPCS.add(tx, vpc)
    of = Reference(vpc.id, vpc.name)
    table = RouteTable(name="main", vpc=of, is_main=True, **base())
    network.ROUTE_TABLES.add(tx, table)
    for name in ("default", "open"):
        group = SecurityGroup(name=name, vpc=of, is_default=name == "default", **base())
        network.SECURITY_GROUPS.add(tx, group)
    routes = Reference(table.id, table.name)
    subnet = Subnet(name="app", vpc=of, cidr_ipv4="10.0.1.0/24", route_table=routes, **base())
    network.SUBNETS.add(tx, subnet)


@asynccontextmanager
async def open_balancers(
    database: Database, *, topics_of: Callable[..., Sequence[str]] = lambda *_: ()
) -> AsyncIterator[BalancerWorld]:
    """Open the world over an empty database."""
    clock = Clock()
    await database.write(furnish, clock())
    proxies, lines, pools, roles = MemoryProxies(), MemoryNetwork(), MemoryPools(), MemoryRoles()
    keys = PlainKeys()
    needs = LoadBalancerNeeds(
        database=database,
        clock=clock,
        events=Events(topics_of),
        node=Node(NODE, Path("/nowhere")),
        parts=Parts(
            interfaces=Interfaces(),
            certificates=Certificates("local", PrivateKeys(keys)),
            pools=pools,
            vips=(ip_network(VIPS),),
        ),
        network=cast("NetworkDriver", lines),
        proxies=cast("Any", proxies),
        roles=cast("ServiceRoles", roles),
        dialled=(),
    )
    of = _routes(), database, clock, FAMILIES, {"loadbalancer": needs}
    app, tokens = plane(*of, new_id=lambda: uuid7(clock()))
    parts = (proxies, lines, pools, roles, keys, ProxyWatch(needs))
    yield BalancerWorld(database, needs, clock, app, tokens, *parts)


async def assert_nothing_left(world: BalancerWorld) -> None:
    """Check that no load balancer has left anything anywhere."""
    assert world.proxies.running == {}
    assert world.network.vips == {}
    assert world.roles.roles == {}

    def left(tx: Connection) -> list[object]:
        found: list[object] = [*rows.taken_vips(tx), *rows.using_pool(tx, ACCOUNT, POOL)]
        (vpc,) = network.VPCS.list(tx, ACCOUNT, "local", [""] * len(network.VPCS.of.filters), "", 9)
        found += network.of_vpc(tx, network.INTERFACES, ACCOUNT, vpc.id)
        for name in ("site", "other"):
            certificate = CERTIFICATES.find_named(tx, ACCOUNT, "local", name)
            assert certificate is not None
            OF_CERTIFICATES.remove(tx, certificate, 0)
        return found

    assert await world.database.write(left) == []
