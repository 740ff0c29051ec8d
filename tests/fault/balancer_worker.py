"""A worker to be killed: ``python -m tests.fault.balancer_worker URL FOLDER PLACE``.

It does the work of load balancers, with proxies that are processes, roles that are rows, and the
network driver that writes files. At a place of that name it says so, and waits for death.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any, NamedTuple, cast

from cloudcore.certificate.keys import PrivateKeys
from cloudcore.certificate.needs import Certificates
from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.events import NO_EVENTS
from cloudcore.iam.service_roles import ServiceRoles
from cloudcore.identity.services.roles import put_platform_role, remove_platform_role
from cloudcore.jobs.worker import JobWorker
from cloudcore.loadbalancer.driver import ProxyPlan
from cloudcore.loadbalancer.embedded import EmbeddedDriver
from cloudcore.loadbalancer.needs import LoadBalancerNeeds, Parts
from cloudcore.loadbalancer.workflow import WORK
from cloudcore.network.drivers.render import Render
from cloudcore.network.network_interfaces import Interfaces
from cloudcore.nodes.node import Node
from tests.balancers import NODE, Instance, MemoryPools, PlainKeys
from tests.dying import DyingDatabase
from tests.fault.certificate_worker import PACE, Death

PORT = 8080
"""Of the instance."""


class Machine(NamedTuple):
    """What a machine has for load balancers."""

    folder: Path
    vips: str

    @property
    def proxies(self) -> EmbeddedDriver:
        """Return what runs proxies."""
        return EmbeddedDriver(self.folder / "balancers", drain_seconds=5)


class _Proxies(EmbeddedDriver):
    """Comes to places before and after it changes a replica."""

    death = Death("")

    async def apply(
        self,
        plan: ProxyPlan,
        replica: int,
        certificates: Mapping[str, bytes],
        netns: Path | None,
    ) -> None:
        await self.death.come_to(f"apply {replica}")
        await super().apply(plan, replica, certificates, netns)
        await self.death.come_to(f"apply {replica} done")

    async def stop(self, balancer_id: str, replica: int) -> None:
        await self.death.come_to(f"stop {replica}")
        await super().stop(balancer_id, replica)
        await self.death.come_to(f"stop {replica} done")


class _Network(Render):
    """Notes addresses in files, and comes to places."""

    def __init__(self, folder: Path, death: Death) -> None:
        super().__init__(folder)
        self._death = death
        self._vips = folder / "vips"
        self._vips.mkdir(parents=True, exist_ok=True)

    async def add_vip(self, vpc_id: str, vip: str, interface_id: str | None = None) -> None:
        await self._death.come_to("attach")
        (self._vips / vip).write_text(f"{vpc_id} {interface_id}")
        await self._death.come_to("attach done")

    async def remove_vip(self, vpc_id: str, vip: str) -> None:
        await self._death.come_to("detach")
        (self._vips / vip).unlink(missing_ok=True)
        await self._death.come_to("detach done")


class _Roles:
    """The rows of roles."""

    def platform_role(
        self, tx: Connection, account_id: str, name: str, policy: Mapping[str, Any], now: int
    ) -> str:
        return put_platform_role(tx, "loadbalancer", account_id, name, policy, uuid7, now)

    def remove_platform_role(self, tx: Connection, account_id: str, role_id: str) -> None:
        remove_platform_role(tx, "loadbalancer", account_id, role_id)


def needs_of(database: Database, machine: Machine, death: Death) -> LoadBalancerNeeds:
    """Return what load balancers depend on, on this machine."""
    proxies = _Proxies(machine.folder / "balancers", drain_seconds=5)
    proxies.death = death
    instances: Sequence[Instance] = [Instance(uuid7(0), None, machine.folder / "ports")]
    return LoadBalancerNeeds(
        database=DyingDatabase(database, death.come_to_write),
        clock=system_clock,
        events=NO_EVENTS,
        node=Node(NODE, machine.folder),
        parts=Parts(
            interfaces=Interfaces(),
            certificates=Certificates("local", PrivateKeys(PlainKeys())),
            pools=MemoryPools(list(instances)),
            vips=(ip_network(machine.vips),),
        ),
        network=_Network(machine.folder / "network", death),
        proxies=proxies,
        roles=cast("ServiceRoles", _Roles()),
        dialled=(),
    )


def worker(database: Database, machine: Machine, place: str = "") -> JobWorker:
    """Return a worker that waits for death at a place; at none, it works."""
    needs = needs_of(database, machine, Death(place))
    return JobWorker(needs.database, [WORK.job_kind(needs, NODE)], pace=PACE)


async def main(url: str, folder: str, vips: str, place: str) -> None:
    """Work until killed."""
    await worker(open_database(url), Machine(Path(folder), vips), place).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
