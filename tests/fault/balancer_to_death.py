"""Does what a driver of load balancers does, and is killed before its n-th step.

`DRIVER FOLDER VIP N start|reload|stop`; a step is a call that changes something outside of the
process. The embedded driver writes its files as the other does: of its
steps with files, only the making of a folder counts. It exits with 0 if there were fewer steps.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cloudcore.loadbalancer.driver import (
    BackendPlan,
    HealthPlan,
    ListenerPlan,
    ProxyPlan,
    TargetPlan,
)
from cloudcore.loadbalancer.embedded import EmbeddedDriver
from cloudcore.loadbalancer.haproxy import HaproxyDriver
from cloudcore.loadbalancer.replicas import Replicas
from cloudcore.nodes import detached_process
from cloudcore.nodes.detached_process import DetachedProcess

BALANCER = "0190f3b8-0000-7000-8000-00000000000a"
CERTIFICATE = "own.pem"
FILE_STEPS = (
    (Path, "replace"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (Path, "rmdir"),
    (Path, "symlink_to"),
    (os, "truncate"),
)
PROXY_STEPS = (
    (detached_process, "start"),
    (DetachedProcess, "signal"),
    (shutil, "rmtree"),
    (Replicas, "_applied"),
)


def plan_of(vip: str, *ports: int) -> ProxyPlan:
    """Return a plan of HTTPS listeners on these ports."""
    return ProxyPlan(
        BALANCER,
        vip,
        tuple(ListenerPlan(port, "https", "web", CERTIFICATE) for port in ports),
        (BackendPlan("web", "http", HealthPlan(), (TargetPlan("one", vip, 1),)),),
    )


def _die_before(step: int, steps: Iterable[tuple[object, str]]) -> None:
    left = step

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return call

    for owner, name in steps:
        setattr(owner, name, counted(getattr(owner, name)))


async def _main(driver: str, folder: Path, vip: str, step: int, act: str) -> None:
    pem = (folder / CERTIFICATE).read_bytes()
    kind, steps = (
        (HaproxyDriver, (*FILE_STEPS, *PROXY_STEPS))
        if driver == "haproxy"
        else (EmbeddedDriver, ((Path, "mkdir"), *PROXY_STEPS))
    )
    replicas = kind(folder / "balancers", drain_seconds=2)
    ports = {"start": (8080,), "reload": (8080, 8081), "stop": ()}[act]
    _die_before(step, steps)
    if ports:
        await replicas.apply(plan_of(vip, *ports), 0, {CERTIFICATE: pem}, None)
    else:
        await replicas.stop(BALANCER, 0)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]))
