"""A node with load balancers is killed: they are lost, start nowhere else, and return.

Two processes of ``entrepot serve`` with one PostgreSQL. The proxies are real and outlive their
service, as on a machine whose service died; the machine's silence of a minute is made in its row.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.nodes import kept_process
from cloudcore.nodes.rows import LOST_SECONDS
from tests.nodes import NODES, LiveFleet, LiveNode, initialized_fleet, until

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(400)]

VIPS: Final = "127.0.91.0/28"
PORT: Final = 18_091


@pytest.fixture
def fleet(postgresql_url: str, tmp_path: Path) -> Iterator[LiveFleet]:
    with initialized_fleet(tmp_path, postgresql_url, ENTREPOT_BALANCER_VIPS=VIPS) as made:
        for name in NODES:
            made.start(name)
        yield made


def new_balancer(node: LiveNode, placed_on: str) -> Mapping[str, Any]:
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
    made: dict[str, Any]
    (made,) = node.call("POST", "/v1/load-balancers", body).values()
    until(lambda: answers(made["vip"]), "no proxy listens")
    return made


def answers(vip: str) -> bool:
    """Return True if a proxy takes a connection at an address, and answers."""
    try:
        with socket.create_connection((vip, PORT), 5) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            return client.recv(12).startswith(b"HTTP/1.1 5")  # there is no such target
    except OSError:
        return False


def shown(node: LiveNode, balancer: Mapping[str, Any]) -> Mapping[str, Any]:
    (found,) = node.call("GET", f"/v1/load-balancers/{balancer['id']}").values()
    return dict(found)


def faults(node: LiveNode, balancer: Mapping[str, Any]) -> list[str]:
    return [each["code"] for each in shown(node, balancer).get("faults", ())]


def proxies(node: LiveNode, balancer: Mapping[str, Any]) -> set[int]:
    """Return the processes that a node has for a load balancer."""
    folders = node.data.glob(f"nodes/{node.name}/balancers/{balancer['id']}/*")
    kept = [kept_process.find(each) for each in folders]
    return {each.pid for each in kept if each is not None}


def pass_silence(fleet: LiveFleet, name: str, balancer: Mapping[str, Any]) -> None:
    """Let a node have been silent for a minute, and its lease on the work of a balancer end."""
    with psycopg.connect(fleet.database, autocommit=True) as connection:
        connection.execute(
            "UPDATE nodes SET seen_at = seen_at - %s WHERE name = %s",
            [(LOST_SECONDS + 1) * MICROSECONDS, name],
        )
        connection.execute(
            "UPDATE jobs SET due_at = 0 WHERE lease_token IS NOT NULL AND dedup_key = %s",
            [balancer["id"]],
        )


def test_what_is_on_a_killed_node_starts_nowhere_else_and_returns(fleet: LiveFleet) -> None:
    east, west = (fleet.nodes[name] for name in NODES)
    lost, other = new_balancer(west, "east"), new_balancer(east, "west")
    until(lambda: proxies(east, lost))
    before = proxies(east, lost)
    assert not proxies(west, lost)
    east.registry.process.send_signal(signal.SIGKILL)
    east.registry.process.wait()
    pass_silence(fleet, "east", lost)
    until(lambda: "NODE_LOST" in faults(west, lost), "the loss is not noted")
    assert shown(west, lost)["status"] == "degraded"
    assert "NODE_LOST" not in faults(west, other)

    # What is wanted meanwhile waits for the node: nobody else does it.
    west.call("PATCH", f"/v1/load-balancers/{lost['id']}", {"replica_count": 2})
    west.call("PATCH", f"/v1/load-balancers/{other['id']}", {"replica_count": 2})
    until(lambda: len(proxies(west, other)) == 2)  # so the work of this node goes on
    for _ in range(4):
        name = f"v-{uuid7()[-12:]}"
        (vpc,) = west.call("POST", "/v1/vpcs", {"name": name, "cidr_ipv4": "10.0.0.0/16"}).values()
        assert vpc["node"] == "west"
    assert not proxies(west, lost)
    assert proxies(east, lost) == before
    assert answers(lost["vip"]), "its proxy lives on, as it did"

    fleet.start("east")
    until(lambda: "NODE_LOST" not in faults(west, lost), "it has not returned")
    until(lambda: len(proxies(east, lost)) == 2)
    assert before < proxies(east, lost), "the one that lived was kept"
    assert not proxies(west, lost)
    assert answers(lost["vip"])
    for each in (lost, other):
        west.call("DELETE", f"/v1/load-balancers/{each['id']}")
        until_gone(west, each)
    assert not proxies(east, lost)


def until_gone(node: LiveNode, balancer: Mapping[str, Any]) -> None:
    until(lambda: node.ask("GET", f"/v1/load-balancers/{balancer['id']}").status_code == 404)
