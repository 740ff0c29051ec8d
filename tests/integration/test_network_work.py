"""VPCs are brought about on their machine as their rows say, and taken down when rows go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.network import rows
from cloudcore.network.driver import InterfacePlan, NetworkDriver, RulesRefused, VpcPlan
from cloudcore.network.drivers.render import Render
from cloudcore.network.family import NETWORK
from cloudcore.network.needs import NetworkNeeds
from cloudcore.network.network_interfaces import Interfaces
from cloudcore.network.planning import plan_of, unchanged
from cloudcore.network.resources import Vpc
from cloudcore.network.workflow import RULES_REFUSED, NetworkReconciler
from cloudcore.nodes.node import NODE_LOST, Node
from cloudcore.nodes.rows import claim, look
from registry.settings.node import NodeSettings
from tests.databases import on_both_databases
from tests.integration.served_world import Served, Tenant, open_served
from tests.jobs import run_due
from tests.network_lab import GLANCE, INTERNET_ADDRESS, Lab, open_lab, streaming, tcp, udp
from tests.network_plans import new_id
from tests.waiting import until_so

DAY: Final = 24 * 3600 * MICROSECONDS
NODE: Final = "here"
# The tenants of `open_served` have one of each kind, so its machine can run each.
SETTINGS: Final = NodeSettings(
    node_name=NODE,
    network_ipv6_ranges="2001:db8:100::/40",
    balancer_vips="203.0.113.0/24",
    compute_driver="runc",
    database_driver="bubblewrap",
)


class Counting(Render):
    """Writes rules, unless it is to refuse them, and notes what it was asked to bring about."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.applied: list[str] = []
        self.refuses = False

    async def apply(self, plan: VpcPlan) -> None:
        if self.refuses:
            raise RulesRefused("the kernel does not take them")
        self.applied.append(plan.id)
        await super().apply(plan)


class World:
    """A served install, and the machine that has the VPCs of its account acme."""

    def __init__(self, served: Served, driver: NetworkDriver, folder: Path) -> None:
        self.served: Final = served
        node = Node(NODE, folder, ("networks",))
        self.needs: Final = NetworkNeeds(
            database=served.database, clock=served.clock, node=node, driver=driver
        )

    async def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Send a request of acme's; return the record that it is answered with."""
        token = self.served.acme.program_token
        answer = await self.served.ask(method, f"/v1/{path}", body, token=token)
        assert answer.status_code < 300, answer.text
        return next(iter(answer.json().values())) if answer.content else None

    async def work(self) -> None:
        kinds = NETWORK.runtime.job_kinds(self.needs)
        await run_due(self.served.database, list(kinds), self.served.clock)

    async def row(self, vpc_id: str) -> Vpc:
        account = self.served.acme.account_id
        found = await self.served.database.read(rows.VPCS.find, account, vpc_id)
        assert found is not None
        return found

    async def plan(self, vpc_id: str) -> VpcPlan:
        found = await self.served.database.read(plan_of, self.served.acme.account_id, vpc_id)
        assert found is not None
        return found


@asynccontextmanager
async def open_world(folder: Path, driver: NetworkDriver, url: str = "") -> AsyncIterator[World]:
    """Open an install whose VPCs are on a machine of the test."""
    async with open_served(folder / "data", url, node=SETTINGS) as served:
        world = World(served, driver, folder)
        # Those of each kind that the install has for all tests.
        await world.work()
        yield world


@pytest.fixture
def driver(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "network")


@pytest.fixture
async def world(tmp_path: Path, driver: Counting, metadata_url: str) -> AsyncIterator[World]:
    async with open_world(tmp_path, driver, metadata_url) as made:
        driver.applied.clear()
        yield made


@on_both_databases
async def test_a_vpc_is_provisioned_then_active_and_deleting_then_gone(
    world: World, driver: Counting, tmp_path: Path
) -> None:
    made = await world.ask("POST", "vpcs", {"name": "net", "cidr_ipv4": "10.7.0.0/16"})
    assert (made["status"], made["node"]) == ("provisioning", NODE)
    await world.work()
    path = f"vpcs/{made['id']}"
    assert (await world.ask("GET", path))["status"] == "active"
    rules = tmp_path / "network" / f"{made['id']}.nft"
    assert "policy drop" in rules.read_text()
    body = {"name": "sub", "vpc": "net", "cidr_ipv4": "10.7.1.0/24"}
    subnet = await world.ask("POST", "subnets", body)
    assert (await world.row(made["id"])).applied < (await world.row(made["id"])).generation
    await world.work()
    row = await world.row(made["id"])
    assert (row.status, row.applied) == ("active", row.generation)
    await world.ask("DELETE", f"subnets/{subnet['id']}")
    await world.ask("DELETE", path)
    assert (await world.ask("GET", path))["status"] == "deleting"
    assert (await world.ask("PATCH", path, {}))["status"] == "deleting"
    assert rules.exists()
    await world.work()
    token = world.served.acme.program_token
    assert (await world.served.ask("GET", f"/v1/{path}", token=token)).status_code == 404
    assert made["id"] not in await driver.known()
    assert not rules.exists()


_WAITING: Final = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.mark.postgresql
async def test_a_step_ends_beside_a_request_that_waits_for_its_job(
    tmp_path: Path, driver: Counting, postgresql_database: str
) -> None:
    """Both lock the job before the VPC, so that they never deadlock."""
    async with open_world(tmp_path, driver, postgresql_database) as world:
        await world.ask("POST", "vpcs", {"name": "net", "cidr_ipv4": "10.7.0.0/16"})
        with (
            psycopg.connect(postgresql_database) as step,
            psycopg.connect(postgresql_database, autocommit=True) as looks,
        ):
            step.execute("UPDATE jobs SET attempts = attempts")
            body = {"name": "sub", "vpc": "net", "cidr_ipv4": "10.7.1.0/24"}
            asking = asyncio.create_task(world.ask("POST", "subnets", body))
            await until_so(lambda: looks.execute(_WAITING).fetchall()[0][0])
            step.execute("SET lock_timeout = '50ms'")
            step.execute("SELECT id FROM vpcs FOR NO KEY UPDATE")
            step.commit()
        assert (await asking)["name"] == "sub"


@pytest.mark.postgresql
async def test_what_is_read_of_a_vpc_is_of_one_moment(
    tmp_path: Path, driver: Counting, postgresql_database: str
) -> None:
    async with open_world(tmp_path, driver, postgresql_database) as world:
        made = await world.ask("POST", "vpcs", {"name": "net", "cidr_ipv4": "10.7.0.0/16"})
        generation = (await world.row(made["id"])).generation
        tries = 0

        def read(_tx: Connection, _account_id: str, vpc_id: str) -> str:
            nonlocal tries
            tries += 1
            if tries < 3:
                with psycopg.connect(postgresql_database) as other:
                    other.execute("UPDATE vpcs SET generation = generation + 1")
            if tries == 2:
                raise KeyError(vpc_id)
            return f"try {tries}"

        find = partial(unchanged, account_id=world.served.acme.account_id, vpc_id=made["id"])
        found = await world.served.database.read(partial(find, read=read))
        assert found == ("try 3", generation + 2)


async def test_refused_rules_are_a_fault_until_they_are_taken(
    world: World, driver: Counting
) -> None:
    driver.refuses = True
    made = await world.ask("POST", "vpcs", {"name": "net", "cidr_ipv4": "10.7.0.0/16"})
    await world.work()
    shown = await world.ask("GET", f"vpcs/{made['id']}")
    assert (shown["status"], [each["code"] for each in shown["faults"]]) == (
        "degraded",
        [RULES_REFUSED],
    )
    assert "kernel" not in shown["faults"][0]["message"]  # what it says is for the operator
    driver.refuses = False
    world.served.clock.now += 60_000_000
    await world.work()
    shown = await world.ask("GET", f"vpcs/{made['id']}")
    assert (shown["status"], shown["faults"]) == ("active", [])


async def test_a_vpc_is_degraded_while_its_machine_is_lost(world: World, driver: Counting) -> None:
    served = world.served
    (vpc, *_) = await world.ask("GET", "vpcs")
    served.clock.now += 1_001 * DAY
    await look(served.database, served.clock, NETWORK.runtime.placings)
    lost = await world.row(vpc["id"])
    assert (lost.status, [each.code for each in lost.faults]) == ("degraded", [NODE_LOST])
    await served.database.write(claim, world.needs.node, new_id(), served.clock())
    await look(served.database, served.clock, NETWORK.runtime.placings)
    assert driver.applied == []
    await world.work()
    back = await world.row(vpc["id"])
    assert (back.status, back.faults, vpc["id"] in driver.applied) == ("active", (), True)


async def test_a_description_changes_nothing_on_the_machine(world: World, driver: Counting) -> None:
    (gateway,) = await world.ask("GET", "egress-only-gateways")
    await world.ask("PATCH", f"egress-only-gateways/{gateway['id']}", {"description": "Out."})
    await world.work()
    assert driver.applied == []


async def test_the_machine_is_brought_to_the_rows_when_the_service_starts(
    world: World, driver: Counting, tmp_path: Path
) -> None:
    """What no row has goes, what is missing comes; what is another install's stays."""
    rowless, strange = new_id(), new_id()
    await driver.apply(VpcPlan(rowless))
    other = Render(tmp_path / "other")
    await other.apply(VpcPlan(strange))
    (tmp_path / "network" / "notes.txt").touch()
    placed = [each for each in await driver.known() if each != rowless]
    assert len(placed) > 1
    await driver.remove(placed[0])
    driver.applied.clear()
    (watch,) = NETWORK.runtime.on_node(world.needs)
    await watch.turn()
    assert sorted(driver.applied) == sorted(await driver.known()) == sorted(placed)
    assert await other.known() == [strange]
    # Later turns bring about what has vanished, and nothing else.
    driver.applied.clear()
    await driver.remove(placed[1])
    await watch.turn()
    assert driver.applied == [placed[1]]
    await watch.turn()
    assert driver.applied == [placed[1]]


async def test_a_refused_vpc_keeps_no_others_from_coming(world: World, driver: Counting) -> None:
    placed = list(await driver.known())
    driver.refuses = True
    await NetworkReconciler(world.needs).turn()
    driver.refuses = False
    assert driver.applied == []
    again = NetworkReconciler(world.needs)
    await again.turn()
    assert sorted(driver.applied) == sorted(placed)


class Overtaken(Counting):
    """Lets another process be faster once, which brings a newer plan about before this one's."""

    def __init__(self, folder: Path, vpc_id: str, change: Callable[[], Awaitable[VpcPlan]]) -> None:
        super().__init__(folder)
        self._late = vpc_id
        self._change = change

    async def apply(self, plan: VpcPlan) -> None:
        if plan.id == self._late:
            self._late = ""
            await super().apply(await self._change())
        await super().apply(plan)


async def test_an_older_plan_does_not_stay_over_a_newer_one(world: World, tmp_path: Path) -> None:
    made = await world.ask("POST", "vpcs", {"name": "net", "cidr_ipv4": "10.7.0.0/16"})

    async def change() -> VpcPlan:
        await world.ask("POST", "security-groups", {"name": "web", "vpc": "net", "rules": []})
        return await world.plan(made["id"])

    late = Overtaken(tmp_path / "late", made["id"], change)
    await NetworkReconciler(replace(world.needs, driver=late)).turn()
    newest = Render(tmp_path / "newest")
    await newest.apply(await world.plan(made["id"]))
    name = f"{made['id']}.nft"
    assert (tmp_path / "late" / name).read_text() == (tmp_path / "newest" / name).read_text()


async def test_what_v1_says_of_a_vpc_is_so_in_the_kernel(tmp_path: Path) -> None:
    """From the first request to the last, with a stream that no change of its gateway ends."""
    async with open_lab(tmp_path / "lab") as lab, open_world(tmp_path, lab.driver) as world:
        served, account = world.served, world.served.acme.account_id
        body: dict[str, object] = {"name": "net", "cidr_ipv4": "10.7.0.0/16"}
        vpc = await world.ask("POST", "vpcs", body | {"cidr_ipv6": "2001:db8:100:700::/56"})
        body = {"name": "sub", "vpc": "net", "cidr_ipv6": "2001:db8:100:701::/64"}
        subnet = await world.ask("POST", "subnets", body)
        rules = [
            {"direction": "inbound", "protocol": "all", "source": "::/0"},
            {"direction": "outbound", "protocol": "all", "destination": "::/0"},
        ]
        group = await world.ask(
            "POST", "security-groups", {"name": "g", "vpc": "net", "rules": rules}
        )

        def place(tx: Connection) -> str:
            owner = f"crn:compute:local:{account}:instance/{new_id()}"
            made = Interfaces().place(
                tx, account, "local", subnet["id"], [group["id"]], owner, served.clock()
            )
            return made.id

        interface_id = await served.database.write(place)
        await world.work()

        async def interface() -> InterfacePlan:
            plan = await world.plan(vpc["id"])
            return next(each for each in plan.interfaces if each.id == interface_id)

        plan, instance = await world.plan(vpc["id"]), await interface()
        host = await lab.add(plan, instance)
        lab.force_routes(plan)
        lab.check_ways(host, instance, out=False)

        uplink = await world.ask("POST", "internet-gateways", {"name": "up"})
        await world.ask("POST", f"internet-gateways/{uplink['id']}/attach", {"vpc": "net"})
        gateway = await world.ask("POST", "egress-only-gateways", {"name": "out", "vpc": "net"})
        tables = await world.ask("GET", f"route-tables?vpc_id={vpc['id']}")
        path = f"route-tables/{tables[0]['id']}"
        await world.ask(
            "PATCH", path, {"routes": [{"destination": "::/0", "target": gateway["id"]}]}
        )
        await world.work()
        lab.check_ways(host, instance, out=True)

        with streaming(host, lab.internet, INTERNET_ADDRESS) as stream:
            for number in range(5):
                before = stream.received
                change = {"description": f"{number}", "tags": {"turn": f"{number}"}}
                await world.ask("PATCH", f"egress-only-gateways/{gateway['id']}", change)
                await world.ask(
                    "POST",
                    "subnets",
                    {"name": f"s{number}", "vpc": "net", "cidr_ipv4": f"10.7.{number}.0/24"},
                )
                await world.work()
                stream.await_more_than(before)
        assert stream.received == stream.sent > 0

        await world.ask("PATCH", path, {"routes": []})
        await world.ask("DELETE", f"egress-only-gateways/{gateway['id']}")
        await world.work()
        lab.force_routes(plan)
        lab.check_ways(host, instance, out=False)


async def test_two_accounts_with_equal_networks_never_meet(tmp_path: Path) -> None:
    """Of what two accounts ask for in the same words and have at the same addresses."""
    async with open_lab(tmp_path / "lab") as lab, open_world(tmp_path, lab.driver) as world:
        both = world.served.acme, world.served.globex
        acme, globex = [await _twins(world, lab, each) for each in both]
        assert [to for _, to in acme] == [to for _, to in globex], "no address tells them apart"
        for ours, others in ((acme, globex), (globex, acme)):
            (first, to_first), (second, to_second) = ours
            assert udp(first, second, to_second) == "answers"
            assert tcp(second, first, to_first) == "answers"
            for host, address in others:
                assert udp(first, host, address, GLANCE) == "nothing"
                assert tcp(second, host, address, GLANCE) == "nothing"


async def _twins(world: World, lab: Lab, tenant: Tenant) -> list[tuple[Path, str]]:
    """Return two instances of an account, of a network that lets all in, with their addresses."""
    made = {}
    everything = {"protocol": "all"}
    rules = [
        everything | {"direction": "inbound", "source": "0.0.0.0/0"},
        everything | {"direction": "outbound", "destination": "0.0.0.0/0"},
    ]
    for path, body in (
        ("vpcs", {"cidr_ipv4": "10.9.0.0/16"}),
        ("subnets", {"vpc": "twin", "cidr_ipv4": "10.9.1.0/24"}),
        ("security-groups", {"vpc": "twin", "rules": rules}),
    ):
        answer = await world.served.ask(
            "POST", f"/v1/{path}", {"name": "twin", **body}, token=tenant.program_token
        )
        assert answer.status_code < 300, answer.text
        made[path] = next(iter(answer.json().values()))["id"]

    def place(tx: Connection) -> Sequence[str]:
        owners = [f"crn:compute:local:{tenant.account_id}:instance/{new_id()}" for _ in range(2)]
        of = tx, tenant.account_id, "local", made["subnets"], [made["security-groups"]]
        return [Interfaces().place(*of, each, world.served.clock()).id for each in owners]

    ids = await world.served.database.write(place)
    await world.work()
    plan = await world.served.database.read(plan_of, tenant.account_id, made["vpcs"])
    assert plan is not None
    placed = sorted(
        (each for each in plan.interfaces if each.id in ids), key=lambda each: ids.index(each.id)
    )
    return [(await lab.add(plan, each), str(each.address_ipv4)) for each in placed]
