"""Replicas in the network namespace of their VPC: nobody's, on low ports, and none is missed."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cloudcore.loadbalancer.driver import ListenerPlan
from tests.balanced import Loop, Server, balanced, in_namespace
from tests.certificates import self_signed
from tests.tools import require_tool

VIP = "10.211.0.9"
LISTENERS = (ListenerPlan(443, "https", "web", "own.pem"), ListenerPlan(80, "http", "web"))
NOBODY = 65534


@pytest.fixture
def netns() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces take root")
    ip = require_tool("ip")
    name = f"balancer-{uuid.uuid4().hex[:12]}"

    def run(*words: str) -> None:
        subprocess.run((ip, *words), check=True)

    run("netns", "add", name)
    try:
        run("-n", name, "link", "set", "lo", "up")
        run("-n", name, "addr", "add", f"{VIP}/32", "dev", "lo")
        yield Path("/run/netns", name)
    finally:
        run("netns", "del", name)


def status_of(process: int, name: str) -> str:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


@pytest.mark.parametrize("kind", ["embedded", "haproxy"])
async def test_no_request_fails_while_a_replica_in_a_namespace_ends(
    kind: str, netns: Path, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path, "own.example.com")
    pem = {"own.pem": certificate.read_bytes() + key.read_bytes()}
    server = await Server("inside").start(netns=netns)
    async with balanced(tmp_path, kind) as balancer:
        balancer.vip = VIP
        plan = balancer.plan(server, listeners=LISTENERS)
        await balancer.apply(plan, 0, 1, certificates=pem, netns=netns)
        owners = [int(status_of(process, "Uid")) for process in balancer.processes()]
        assert owners.count(NOBODY) == 2
        assert owners.count(0) == (2 if kind == "haproxy" else 0)  # its masters, which serve nobody
        async with Loop(partial(balancer.ask, port=80, netns=netns)) as loop:
            for _ in range(3):
                await loop.more(40)
                await balancer.stop(1)
                await loop.more(40)
                await balancer.apply(plan, 1, certificates=pem, netns=netns)
            await balancer.apply(balancer.plan(server), 0, netns=netns)
        assert loop.failed == []
        assert set(loop.served) == {b"inside"}
        migrates = in_namespace(netns, Path("/proc/sys/net/ipv4/tcp_migrate_req").read_text)
        assert migrates == "1\n"
    await server.die()
