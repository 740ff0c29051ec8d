"""Describe load balancers: an address, its listeners, and their backends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from cloudcore.loadbalancer.driver import TargetStatus
from cloudcore.metering.sku import Sku
from cloudcore.nodes.node import NODE_LOST
from cloudcore.nodes.placed import Placed
from cloudcore.resources.resource import (
    Description,
    Filter,
    Resource,
    ResourceName,
    fixed,
    given,
    own,
)

Status = Literal["provisioning", "active", "updating", "degraded", "failed", "deleting"]
ListenerProtocol = Literal["tcp", "http", "https"]
BackendProtocol = Literal["tcp", "http"]
MOST_REPLICAS: Final = 4
GET_POOL: Final = "compute:GetInstancePool"
"""The action that a caller needs on a pool that is a target."""
HOURS: Final = Sku("loadbalancer.hours", "Load balancers", "hour")


class Named(Struct, frozen=True):
    """A resource of another family: its id and its name, which never changes."""

    id: str
    name: str = ""


class Listener(Struct, frozen=True, omit_defaults=True):
    """A port that clients reach."""

    port: int
    protocol: ListenerProtocol
    backend: str
    """The name of one of the backends."""
    certificate: Named | None = None


class HealthCheck(Struct, frozen=True):
    """A health check: a target accepts a connection, or answers a GET with 2xx or 3xx."""

    protocol: BackendProtocol = "tcp"
    path: str | None = None
    """The path of the request; None with ``tcp``."""
    interval_seconds: int = 5
    timeout_seconds: int = 2
    healthy_threshold: int = 2
    """After so many successes a target is healthy."""
    unhealthy_threshold: int = 3
    """After so many failures a target is unhealthy."""


class Target(Struct, frozen=True, omit_defaults=True):
    """A destination of connections: an address, or all instances of a pool."""

    port: int
    address: str = ""
    pool: Named | None = None


class Backend(Struct, frozen=True):
    """Targets that are alike, with their health check."""

    name: str
    protocol: BackendProtocol
    health_check: HealthCheck
    targets: tuple[Target, ...]


class TargetState(Struct, frozen=True, omit_defaults=True):
    """A target with its health as the proxies report it; a pool's targets are its instances."""

    backend: str
    id: str
    """The id of the target in the plan (`TargetPlan.id`)."""
    port: int
    address: str = ""
    instance_id: str = ""
    state: TargetStatus = "unknown"


class Replica(Struct, frozen=True):
    """One of the proxies."""

    number: int
    is_alive: bool


class LoadBalancer(Placed, frozen=True, kw_only=True):
    """One address in front of the instances of a VPC."""

    name: ResourceName
    description: Description = ""
    vip: Annotated[
        str,
        Meta(max_length=45),
        fixed("an address of the operator's ranges; by default a free one", heading="VIP"),
    ] = ""
    """The address that clients reach; no other load balancer has it until this one is gone."""
    replica_count: Annotated[
        int,
        Meta(ge=1, le=MOST_REPLICAS),
        given("proxies that share the address", heading="REPLICAS", form="number"),
    ] = 2
    """Proxies that share the address."""
    status: Annotated[Status, own(heading="STATUS")] = "provisioning"
    """`degraded`: it serves, but something of it is gone; `failed`: no proxy could be started."""
    node: Annotated[str, own(heading="NODE")] = ""
    """Name of the machine that its proxies are on."""
    tags: Annotated[dict[str, str], given("a tag of the load balancer")] = field(
        default_factory=dict
    )
    vpc: Annotated[Named, own(hidden=True)] = Named("")
    subnet: Annotated[Named, own(hidden=True)] = Named("")
    interface_id: Annotated[str | None, own(hidden=True)] = None
    """The id of its interface in the subnet; None after that is released."""
    security_groups: Annotated[tuple[Named, ...], own(hidden=True)] = ()
    listeners: Annotated[tuple[Listener, ...], own(hidden=True)] = ()
    backends: Annotated[tuple[Backend, ...], own(hidden=True)] = ()
    role_id: Annotated[str | None, own(hidden=True)] = None
    """The id of the role of its replicas; None before the role is made, and after it is deleted."""
    generation: Annotated[int, own(hidden=True)] = 1
    """Counts the changes that the replicas are to carry out."""
    applied: Annotated[int, own(hidden=True)] = 0
    """The generation that the replicas carry out."""
    fingerprints: Annotated[dict[str, str], own(hidden=True)] = field(default_factory=dict)
    """The fingerprints of the certificates that the replicas have, by certificate id."""
    replicas: Annotated[tuple[Replica, ...], own(hidden=True)] = ()
    targets: Annotated[tuple[TargetState, ...], own(hidden=True)] = ()

    @property
    def crn(self) -> str:
        """Return the load balancer's CRN."""
        return LOAD_BALANCER.crn_of(self)

    @property
    def certificates(self) -> Mapping[str, Named]:
        """Map id to certificate, for the certificates of all listeners."""
        found = (each.certificate for each in self.listeners)
        return {each.id: each for each in found if each is not None}

    @property
    def pools(self) -> Mapping[str, Named]:
        """Map id to pool, for the pools among all targets."""
        found = (each.pool for each in self._targets)
        return {each.id: each for each in found if each is not None}

    @property
    def _targets(self) -> Iterator[Target]:
        return (target for each in self.backends for target in each.targets)


LOAD_BALANCER: Final = Resource(
    record=LoadBalancer,
    service="loadbalancer",
    one="load_balancer",
    many="load_balancers",
    quota=50,
    filters=(Filter("name"), Filter("status")),
    methods=("list", "get"),
    actions={
        "create": "CreateLoadBalancer",
        "update": "UpdateLoadBalancer",
        "delete": "DeleteLoadBalancer",
    },
    more_actions=("GetLoadBalancerMetrics", "PutLoadBalancerMetrics"),
    summaries={
        "loadbalancer:PutLoadBalancerMetrics": "Report what a load balancer served, which the role"
        " of its own replicas may.",
    },
    warnings=frozenset({"REPLICA_DIED", NODE_LOST}),
    states={
        "active": "A load balancer serves, with all that belongs to it",
        "degraded": "A load balancer serves, but something of it is gone",
        "failed": "A load balancer does not serve",
    },
    state_data=lambda found: {"vip": found.vip},
)
"""The load balancers of accounts."""
