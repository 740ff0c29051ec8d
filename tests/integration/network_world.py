"""A control plane of networks alone: what acme does there, and what its machine is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv6Network
from pathlib import Path
from typing import Any, Final

import httpx

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.network import rows
from cloudcore.network.driver import RulesRefused, VpcPlan
from cloudcore.network.drivers.render import Render
from cloudcore.network.family import NETWORK
from cloudcore.network.needs import NetworkNeeds
from cloudcore.network.network_interfaces import Interfaces
from cloudcore.network.planning import plan_of
from cloudcore.network.resources import NetworkInterface, Vpc
from cloudcore.nodes.node import Node
from cloudcore.nodes.rows import claim
from cloudcore.web.app import Routes, family_routes
from tests import control_plane
from tests.control_plane import ACCOUNT, OTHER_ACCOUNT
from tests.databases import opened
from tests.kms_world import add_account

RANGE: Final = "2001:db8:100::/40"
"""What the operator has for VPCs."""
NODE: Final = Node("here", Path("/nonexistent"), ("networks",))
LOCAL: Final = Interfaces()


class Noting(Render):
    """Notes the plans whose rules it is asked for, and takes none while it `refuses`."""

    refuses = False

    def __init__(self) -> None:
        super().__init__(NODE.folder)
        self.checked: list[VpcPlan] = []
        self.meanwhile: Callable[[VpcPlan], None] = lambda _: None
        """Called while it looks at rules."""

    def refuse(self, plan: VpcPlan) -> None:
        self.checked.append(plan)
        self.meanwhile(plan)
        if self.refuses:
            raise RulesRefused("the kernel does not take them")

    def check_really(self) -> None:
        """Have the rules checked that it was asked for last."""
        super().refuse(self.checked[-1])


@dataclass
class World(control_plane.World):
    """A control plane of networks; `writer` is of acme, `stranger` of globex."""

    driver: Noting = field(default_factory=Noting)

    async def to(
        self, method: str, path: str, body: object = None, *, token: str = "writer"
    ) -> httpx.Response:
        """Send a request below ``/v1``."""
        return await self.ask(method, f"/v1/{path}", body, token=token)

    async def make(self, many: str, name: str, **body: object) -> Any:  # noqa: ANN401
        """Create something of acme's and return its record."""
        made = await self.to("POST", many, {"name": name, **body})
        assert made.status_code == 201, made.text
        (record,) = made.json().values()
        return record

    async def vpc(self, name: str = "shop", **body: object) -> Any:  # noqa: ANN401
        """Create a VPC; by default one with private IPv4 alone."""
        return await self.make("vpcs", name, **{"cidr_ipv4": "10.1.0.0/16", **body})

    async def uplink(self, vpc: str = "shop") -> Any:  # noqa: ANN401
        """Create an internet gateway named after a VPC, and attach it."""
        gateway = await self.make("internet-gateways", vpc)
        path = f"internet-gateways/{gateway['id']}/attach"
        attached = await self.to("POST", path, {"vpc": vpc})
        assert attached.status_code == 200, attached.text
        return attached.json()["internet_gateway"]

    async def refused(
        self, method: str, path: str, body: object = None, *, token: str = "writer"
    ) -> tuple[int, Any]:
        """Return the status and the error's `params` of a request that is refused."""
        answer = await self.to(method, path, body, token=token)
        assert answer.status_code >= 400, answer.text
        return answer.status_code, answer.json()["error"].get("params")

    async def list(self, path: str) -> Any:  # noqa: ANN401
        """Return the records of a list."""
        answer = (await self.to("GET", path)).json()
        (records,) = (each for name, each in answer.items() if name != "meta")
        return records

    async def plan(self, vpc_id: str) -> VpcPlan:
        """Return the plan of a VPC of acme's."""
        found = await self.database.read(plan_of, ACCOUNT, vpc_id)
        assert found is not None
        return found

    async def row(self, vpc_id: str) -> Vpc:
        """Return the row of a VPC of acme's."""
        found = await self.database.read(rows.VPCS.find, ACCOUNT, vpc_id)
        assert found is not None
        return found

    async def place(self, subnet_id: str, *groups: str, number: int = 1) -> NetworkInterface:
        """Give an instance of acme's addresses of a subnet."""

        def change(tx: Connection) -> NetworkInterface:
            owner = f"crn:compute:local:{ACCOUNT}:instance/{number}"
            return LOCAL.place(tx, ACCOUNT, "local", subnet_id, groups, owner, self.now)

        return await self.database.write(change)

    async def release(self, interface: NetworkInterface) -> None:
        """Take the addresses of an instance."""
        await self.database.write(LOCAL.release, interface.id, self.now)


@cache
def _routes() -> Routes:
    """Return the routes of every world, made once."""
    return Routes([family_routes(NETWORK.name, NETWORK.runtime.routes)])


@asynccontextmanager
async def open_world(url: str) -> AsyncIterator[World]:
    """Open a world whose operator has a range of global IPv6, and one machine."""
    async with opened(url) as database:
        await _furnish(database)
        world: World
        driver = Noting()

        def clock() -> int:
            return world.now

        needs = NetworkNeeds(
            database=database,
            clock=clock,
            node=NODE,
            driver=driver,
            ipv6_ranges=(IPv6Network(RANGE),),
        )
        of = _routes(), database, clock, [NETWORK]
        app, tokens = control_plane.plane(*of, {NETWORK.name: needs})
        world = World(app, database, tokens, driver=driver)
        yield world


async def _furnish(database: Database) -> None:
    for each in (ACCOUNT, OTHER_ACCOUNT):
        await database.write(add_account, each, f"account-{each[-1]}")
    await database.write(claim, NODE, uuid7(), control_plane.START)
