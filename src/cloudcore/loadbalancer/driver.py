"""What runs the replicas of load balancers on a machine, as the rest of the family sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from cloudcore.loadbalancer.proxy_plan import ProxyPlan

TargetStatus = Literal["healthy", "unhealthy", "draining", "unknown"]


class ProxyFailed(Exception):
    """A replica could not be started or reloaded; the text says why. What ran before goes on."""


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """What a replica has done since it was started or, with HAProxy, reloaded."""

    bytes_in: int = 0
    """From clients."""
    bytes_out: int = 0
    connections: int = 0
    requests: int = 0
    """Of listeners that speak HTTP."""
    answers: Mapping[str, int] = field(default_factory=dict)
    """By class of status: `1xx` to `5xx`."""


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """A replica that this machine has something of."""

    replica: int
    is_alive: bool
    """It answers; a dead one is started by the next `apply`."""
    targets: Mapping[tuple[str, str], TargetStatus] = field(default_factory=dict)
    """By the name of the backend and the id of the target."""
    metrics: ReplicaMetrics = field(default_factory=ReplicaMetrics)


class ProxyDriver(Protocol):
    """Runs replicas as processes that outlive this one."""

    def check(self) -> None:
        """Return if this machine can run replicas.

        Raises:
            DriverUnusable: what is missing.

        """
        ...

    async def apply(
        self,
        plan: ProxyPlan,
        replica: int,
        certificates: Mapping[str, bytes],
        netns: Path | None,
    ) -> None:
        """Start a replica, or reload it if anything differs; return when it does what is planned.

        No connection is dropped by a reload. `certificates` are the files that listeners name:
        PEM of the chain and of the key. `netns` is the network namespace that a replica is started
        in; None is the machine's.

        Raises:
            ProxyFailed: it cannot do what is planned.

        """
        ...

    async def stop(self, balancer_id: str, replica: int) -> None:
        """Let a replica finish its connections, then end it and delete its files.

        Connections that have not ended after the driver's `drain_seconds` are cut. No error if
        there is nothing.
        """
        ...

    async def seen(self, balancer_id: str) -> Sequence[ReplicaSeen]:
        """Return the replicas of a balancer that this machine has something of."""
        ...

    async def known(self) -> Sequence[str]:
        """Return the ids of the balancers that this machine has something of."""
        ...
