"""A node is killed with what is placed on it: that is lost, starts nowhere else, and returns.

Two processes of ``entrepot serve`` with one PostgreSQL. Proxies, instances and database servers are
real and outlive their service, as on a machine whose service died; the machine's silence of a
minute is made in its row.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.nodes import detached_process
from cloudcore.nodes.rows import LOST_SECONDS
from tests.busybox_images import busybox_image, push_as
from tests.nodes import LiveFleet, LiveNode, initialized_fleet
from tests.postgresql import free_port
from tests.tools import missing, require_tool
from tests.waiting import until

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(400)]

VIPS: Final = "127.0.91.0/28"
PORT: Final = 18_091
ENDLESS: Final = "trap exit TERM; while :; do sleep 1 & wait; done"


class Kind(NamedTuple):
    """A kind of things that are placed on a node."""

    path: str
    folders: str
    """Of the processes of one, on its node."""
    lost: str
    """Its status meanwhile."""


BALANCER: Final = Kind("/v1/load-balancers", "balancers/{id}/*", "degraded")
POOL: Final = Kind("/v1/instance-pools", "instances/*", "degraded")
CLUSTER: Final = Kind("/v1/clusters", "databases/{id}", "unavailable")


class Thing(NamedTuple):
    """One of them."""

    kind: Kind
    id: str
    vip: str = ""

    @property
    def path(self) -> str:
        return f"{self.kind.path}/{self.id}"

    def shown(self, node: LiveNode) -> Mapping[str, Any]:
        (found,) = node.call("GET", self.path).values()
        return dict(found)

    def faults(self, node: LiveNode) -> list[str]:
        return [each["code"] for each in self.shown(node).get("faults", ())]

    def processes(self, node: LiveNode) -> set[int]:
        """Return the processes that a node has for it."""
        folders = node.data.glob(f"nodes/{node.name}/{self.kind.folders.format(id=self.id)}")
        kept = [detached_process.find(each) for each in folders if each.is_dir()]
        return {each.pid for each in kept if each is not None}

    def is_gone(self, node: LiveNode) -> bool:
        return node.ask("GET", self.path).status_code == 404


@pytest.fixture
def fleet(postgresql_url: str, migrated_template: str, tmp_path: Path) -> Iterator[LiveFleet]:
    if os.geteuid() != 0:
        missing("root, for runc")
    for program in ("runc", "busybox", "bwrap"):
        require_tool(program)
    port = free_port()
    settings = {
        "ENTREPOT_BALANCER_VIPS": VIPS,
        "ENTREPOT_COMPUTE_DRIVER": "runc",
        "ENTREPOT_DATABASE_DRIVER": "bubblewrap",
        "ENTREPOT_DATABASE_PORTS": f"{port}-{port}",
    }
    with initialized_fleet(tmp_path, postgresql_url, migrated_template, **settings) as made:
        yield made


def new_balancer(node: LiveNode, placed_on: str) -> Thing:
    """Let a load balancer be made in a VPC on a node, which is chosen by chance."""
    while True:
        name = f"v-{uuid7()[-12:]}"
        (vpc,) = node.call("POST", "/v1/vpcs", {"name": name, "cidr_ipv4": "10.20.0.0/16"}).values()
        if vpc["node"] == placed_on:
            break
    subnet = {"name": name, "vpc": name, "cidr_ipv4": "10.20.1.0/24"}
    node.call("POST", "/v1/subnets", subnet)
    body = {
        "name": name,
        "subnet": name,
        "listeners": [{"port": PORT, "protocol": "http", "backend": "web"}],
        "backends": [
            {
                "name": "web",
                "protocol": "http",
                "targets": [{"address": "10.20.1.20", "port": 8080}],
            }
        ],
        "replica_count": 1,
    }
    (made,) = node.call("POST", BALANCER.path, body).values()
    return Thing(BALANCER, made["id"], made["vip"])


def new_pool(node: LiveNode) -> Thing:
    """Push an image, and let an instance of it run."""
    login = node.call("POST", "/v1/authorization-token")
    image = busybox_image("sh", "-c", ENDLESS)
    push_as(node.url, (login["username"], login["password"]), "acme/web", "1", image)

    def said(*statements: Mapping[str, object]) -> Mapping[str, object]:
        return {"version": "1", "statements": statements}

    trust = said({"effect": "allow", "principals": ["crn:iam:::service/compute"]})
    may_all = said({"effect": "allow", "actions": ["*"], "resources": ["*"]})
    node.call("POST", "/v1/roles", {"name": "runs", "trust_policy": trust})
    policy = node.call("POST", "/v1/policies", {"name": "runs", "document": may_all})["policy"]
    role = node.call("GET", "/v1/roles?name=runs")["roles"][0]
    node.call("POST", f"/v1/policies/{policy['id']}/attachments", {"role": role["id"]})
    body = {"name": "web", "image": "web:1", "role": "runs", "size": 1, "memory_mb": 64}
    (made,) = node.call("POST", POOL.path, body).values()
    return Thing(POOL, made["id"])


def new_cluster(node: LiveNode) -> Thing:
    """Let a database server run."""
    made = node.call("POST", CLUSTER.path, {"name": "shop", "size": {}})["cluster"]
    return Thing(CLUSTER, made["id"])


def answers(balancer: Thing) -> bool:
    """Return True if a proxy takes a connection at the address, and answers."""
    try:
        with socket.create_connection((balancer.vip, PORT), 5) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            return client.recv(12).startswith(b"HTTP/1.1 5")  # there is no such target
    except OSError:
        return False


def pass_silence(fleet: LiveFleet, name: str, lost: list[Thing]) -> None:
    """Let a node have been silent for a minute, and its leases on the work of things end."""
    with psycopg.connect(fleet.database, autocommit=True) as connection:
        connection.execute(
            "UPDATE nodes SET seen_at = seen_at - %s WHERE name = %s",
            [(LOST_SECONDS + 1) * MICROSECONDS, name],
        )
        connection.execute(
            "UPDATE jobs SET due_at = 0 WHERE lease_token IS NOT NULL AND dedup_key = ANY(%s)",
            [[each.id for each in lost]],
        )
    look_now(fleet)


def look_now(fleet: LiveFleet) -> None:
    """Let it be time to look which nodes are lost."""
    with psycopg.connect(fleet.database, autocommit=True) as connection:
        connection.execute("UPDATE schedules SET due_at = 0 WHERE name = 'kernel.nodes'")


def each_until(is_so: Callable[[Thing], bool], *things: Thing) -> None:
    """Wait until something is so of all things."""
    for each in things:
        until(partial(is_so, each), f"it does not come about: {each.path}", seconds=90)


def test_what_is_on_a_killed_node_starts_nowhere_else_and_returns(fleet: LiveFleet) -> None:
    east = fleet.start("east")
    balancer, pool, cluster = lost = [new_balancer(east, "east"), new_pool(east), new_cluster(east)]
    west = fleet.start("west")
    other = new_balancer(east, "west")
    each_until(answers, balancer, other)
    each_until(lambda each: each.shown(west)["status"] == "active", pool, cluster)
    before = {each: each.processes(east) for each in lost}
    assert all(before.values())
    assert not any(each.processes(west) for each in lost)
    east.registry.process.send_signal(signal.SIGKILL)
    east.registry.process.wait()
    pass_silence(fleet, "east", lost)
    each_until(lambda each: "NODE_LOST" in each.faults(west), *lost)
    assert [each.shown(west)["status"] for each in lost] == [each.kind.lost for each in lost]
    assert "NODE_LOST" not in other.faults(west)

    # What is wanted meanwhile waits for the node: nobody else does it.
    west.call("PATCH", balancer.path, {"replica_count": 2})
    west.call("PATCH", pool.path, {"size": 2})
    west.call("POST", f"{cluster.path}/stop")
    west.call("PATCH", other.path, {"replica_count": 2})
    until(lambda: len(other.processes(west)) == 2)  # so the work of this node goes on
    for _ in range(4):
        name = f"v-{uuid7()[-12:]}"
        (vpc,) = west.call("POST", "/v1/vpcs", {"name": name, "cidr_ipv4": "10.0.0.0/16"}).values()
        assert vpc["node"] == "west"
    for each in lost:
        assert not each.processes(west)
        assert each.processes(east) == before[each], "it lives on, as it did"
    assert answers(balancer)

    fleet.start("east")
    look_now(fleet)
    each_until(lambda each: "NODE_LOST" not in each.faults(west), *lost)
    each_until(lambda each: len(each.processes(east)) == 2, balancer, pool)
    for each in (balancer, pool):
        assert before[each] < each.processes(east), "the one that lived was kept"
    until(lambda: cluster.shown(west)["status"] == "stopped", seconds=90)
    assert not any(each.processes(west) for each in lost)
    assert answers(balancer)
    for each in (*lost, other):
        west.call("DELETE", each.path)
    each_until(lambda each: each.is_gone(west), *lost, other)
    assert not any(each.processes(node) for each in lost for node in (east, west))
