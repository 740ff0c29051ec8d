"""Bodies of requests and answers about listeners, backends and targets, and their checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType, field, structs

from cloudcore.errors import invalid_field
from cloudcore.loadbalancer.driver import HEALTH_PATH, TargetStatus
from cloudcore.loadbalancer.load_balancer import (
    MOST_REPLICAS,
    Backend,
    BackendProtocol,
    HealthCheck,
    Listener,
    ListenerProtocol,
    LoadBalancer,
    Named,
    Target,
)
from cloudcore.resource_names import Uuid
from cloudcore.resources.resource import Description
from cloudcore.web.bodies import ResourceRef
from cloudcore.wire import RequestBody, ResponseBody

MOST_LISTENERS: Final = 10
MOST_BACKENDS: Final = 20
MOST_TARGETS: Final = 100
"""The most targets of one backend."""
MOST_GROUPS: Final = 5
_BACKEND_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

Text = Annotated[str, Meta(min_length=1, max_length=512)]
Port = Annotated[int, Meta(ge=1, le=65535)]


class GivenListener(RequestBody):
    """A port that clients reach."""

    port: Port
    protocol: ListenerProtocol
    backend: Text
    """The name of one of the backends: of protocol ``tcp`` for ``tcp``, else of ``http``."""
    certificate: Text | None = None
    """The id, the name or the CRN of a certificate; of ``https`` alone."""


class GivenHealthCheck(RequestBody):
    """When a target is healthy: it accepts a connection, or answers with 2xx or 3xx."""

    protocol: BackendProtocol = "tcp"
    path: Annotated[str, Meta(max_length=1024)] | None = None
    """The path of the request; of ``http`` alone, by default ``/``."""
    interval_seconds: Annotated[int, Meta(ge=1, le=300)] = 5
    timeout_seconds: Annotated[int, Meta(ge=1, le=60)] = 2
    """At most the interval."""
    healthy_threshold: Annotated[int, Meta(ge=1, le=10)] = 2
    unhealthy_threshold: Annotated[int, Meta(ge=1, le=10)] = 3


class GivenTarget(RequestBody):
    """A destination of connections: either an address or a pool."""

    port: Port
    address: Annotated[str, Meta(max_length=45)] | None = None
    """In a subnet of the VPC."""
    pool: Text | None = None
    """The id, the name or the CRN of an instance pool: all its instances that are ready."""


class GivenBackend(RequestBody):
    """Targets that are alike; connections go to the healthy ones in turn."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    protocol: BackendProtocol
    targets: Annotated[list[GivenTarget], Meta(max_length=MOST_TARGETS)] = field(
        default_factory=list
    )
    health_check: GivenHealthCheck | None = None
    """By default, connections are made every 5 seconds."""


Listeners = Annotated[list[GivenListener], Meta(min_length=1, max_length=MOST_LISTENERS)]
Backends = Annotated[list[GivenBackend], Meta(min_length=1, max_length=MOST_BACKENDS)]
Groups = Annotated[list[Text], Meta(max_length=MOST_GROUPS)]
ReplicaCount = Annotated[int, Meta(ge=1, le=MOST_REPLICAS)]


class CreateLoadBalancer(RequestBody):
    """A new load balancer; its name, subnet and vip cannot be changed later."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    subnet: Text
    """The id, the name or the CRN of a subnet."""
    listeners: Listeners
    backends: Backends
    vip: Annotated[str, Meta(min_length=1, max_length=45)] | None = None
    """An address of the operator's ranges; by default one that is free."""
    security_groups: Groups = field(default_factory=list)
    """Ids, names or CRNs of security groups of the VPC; by default its default group."""
    replica_count: ReplicaCount = 2
    """Proxies that share the address."""
    description: Description = ""
    tags: dict[str, str] = field(default_factory=dict)


class UpdateLoadBalancer(RequestBody):
    """The fields to change, each of which is replaced whole."""

    listeners: Listeners | UnsetType = UNSET
    backends: Backends | UnsetType = UNSET
    security_groups: Groups | UnsetType | None = UNSET
    replica_count: ReplicaCount | UnsetType | None = UNSET
    description: Description | UnsetType | None = UNSET
    tags: dict[str, str] | UnsetType | None = UNSET


class ListenerRecord(ResponseBody):
    """A port that clients reach."""

    port: int
    protocol: ListenerProtocol
    backend: str
    certificate: ResourceRef | UnsetType = UNSET


class HealthCheckRecord(ResponseBody):
    """When a target is healthy."""

    protocol: BackendProtocol
    interval_seconds: int
    timeout_seconds: int
    healthy_threshold: int
    unhealthy_threshold: int
    path: str | UnsetType = UNSET


class TargetRecord(ResponseBody):
    """A destination of connections."""

    port: int
    address: str | UnsetType = UNSET
    pool: ResourceRef | UnsetType = UNSET


class TargetHealth(ResponseBody):
    """A target with the health that the proxies report; a pool's targets are its instances."""

    port: int
    state: TargetStatus
    address: str | UnsetType = UNSET
    instance_id: Uuid | UnsetType = UNSET


class BackendRecord(ResponseBody):
    """Targets that are alike, with their health."""

    name: str
    protocol: BackendProtocol
    health_check: HealthCheckRecord
    targets: Sequence[TargetRecord]
    health: Sequence[TargetHealth]
    """The health of each target, or instance of a pool, that connections may go to."""


class ReplicaRecord(ResponseBody):
    """One of the proxies."""

    number: int
    is_alive: bool


def read_listeners(given: Sequence[GivenListener]) -> tuple[Listener, ...]:
    """Convert the listeners of a request; their certificates are still unresolved references.

    Raise `InvalidInput` if two have the same port, one of ``https`` has no certificate, or another
    one has a certificate.
    """
    check_distinct("listeners", "port", (each.port for each in given))
    for number, each in enumerate(given):
        if (each.certificate is not None) != (each.protocol == "https"):
            needs = "needs a certificate" if each.protocol == "https" else "has no certificate"
            raise invalid_field(
                f"listeners[{number}].certificate", f"a listener of {each.protocol} {needs}"
            )
    return tuple(
        Listener(
            each.port,
            each.protocol,
            each.backend,
            None if each.certificate is None else Named(each.certificate),
        )
        for each in given
    )


def read_backends(given: Sequence[GivenBackend]) -> tuple[Backend, ...]:
    """Convert the backends of a request; their pools are still unresolved references.

    Raise `InvalidInput`, naming the field, if one is not valid.
    """
    check_distinct("backends", "name", (each.name for each in given))
    found = []
    for number, each in enumerate(given):
        where = f"backends[{number}]"
        if not _BACKEND_NAME.fullmatch(each.name):
            raise invalid_field(
                f"{where}.name", "1 to 63 of a-z 0-9 . _ -, begins with a letter or digit"
            )
        targets = tuple(
            _target(f"{where}.targets[{at}]", one) for at, one in enumerate(each.targets)
        )
        check = _health_check(f"{where}.health_check", each.health_check)
        found.append(Backend(each.name, each.protocol, check, targets))
    return tuple(found)


def check_match(listeners: Iterable[Listener], backends: Iterable[Backend]) -> None:
    """Raise `InvalidInput` unless each listener names a backend of its protocol."""
    protocols = {each.name: each.protocol for each in backends}
    for number, each in enumerate(listeners):
        wanted = "tcp" if each.protocol == "tcp" else "http"
        if (has := protocols.get(each.backend)) is None:
            raise invalid_field(
                f"listeners[{number}].backend", f"there is no backend {each.backend!r}"
            )
        if has != wanted:
            words = f"a listener of {each.protocol} needs a backend of {wanted}, not {has}"
            raise invalid_field(f"listeners[{number}].backend", words)


def address_of(name: str, text: str) -> str:
    """Parse an IP address and return its canonical form.

    Raise `InvalidInput`, naming the field `name`, if `text` is no address or has a zone.
    """
    try:
        found = ip_address(text)
    except ValueError:
        raise invalid_field(name, "it is no IP address") from None
    if "%" in text:
        raise invalid_field(name, "an address has no zone")
    return str(found)


def _target(where: str, given: GivenTarget) -> Target:
    if (given.address is None) == (given.pool is None):
        raise invalid_field(where, "a target has either an address or a pool")
    if given.address is not None:
        return Target(given.port, address=address_of(f"{where}.address", given.address))
    assert given.pool is not None
    return Target(given.port, pool=Named(given.pool))


def _health_check(where: str, given: GivenHealthCheck | None) -> HealthCheck:
    check = given or GivenHealthCheck()
    if check.path is not None and check.protocol != "http":
        raise invalid_field(f"{where}.path", "a check of tcp has no path")
    if check.path is not None and not HEALTH_PATH.fullmatch(check.path):
        raise invalid_field(
            f"{where}.path", "begins with / and has what a path and query may have (RFC 3986)"
        )
    if check.timeout_seconds > check.interval_seconds:
        raise invalid_field(f"{where}.timeout_seconds", "at most the interval")
    path = (check.path or "/") if check.protocol == "http" else None
    return HealthCheck(**structs.asdict(check) | {"path": path})


def check_distinct(name: str, what: str, values: Iterable[object]) -> None:
    """Raise `InvalidInput`, naming the field `name`, if two values are equal.

    The message calls such a value `what`.
    """
    seen = list(values)
    if len(set(seen)) < len(seen):
        raise invalid_field(name, f"two have the same {what}", "duplicate")


def shown_subnet(found: LoadBalancer) -> ResourceRef:
    """Return the subnet of a load balancer for an answer."""
    return _reference(found, found.subnet, "network", "subnet")


def shown_vpc(found: LoadBalancer) -> ResourceRef:
    """Return the VPC of a load balancer for an answer."""
    return _reference(found, found.vpc, "network", "vpc")


def shown_groups(found: LoadBalancer) -> Sequence[ResourceRef]:
    """Return the security groups of a load balancer for an answer."""
    return [_reference(found, each, "network", "security-group") for each in found.security_groups]


def shown_listeners(found: LoadBalancer) -> Sequence[ListenerRecord]:
    """Return the listeners of a load balancer for an answer."""
    return [
        ListenerRecord(
            port=each.port,
            protocol=each.protocol,
            backend=each.backend,
            certificate=UNSET
            if each.certificate is None
            else _reference(found, each.certificate, "certificate", "certificate"),
        )
        for each in found.listeners
    ]


def shown_backends(found: LoadBalancer) -> Sequence[BackendRecord]:
    """Return the backends of a load balancer for an answer, with the health of their targets."""
    return [
        BackendRecord(
            name=each.name,
            protocol=each.protocol,
            health_check=_shown_check(each.health_check),
            targets=[
                TargetRecord(
                    port=one.port,
                    address=one.address or UNSET,
                    pool=UNSET
                    if one.pool is None
                    else _reference(found, one.pool, "compute", "instance-pool"),
                )
                for one in each.targets
            ],
            health=[
                TargetHealth(
                    port=one.port,
                    state=one.state,
                    address=one.address or UNSET,
                    instance_id=one.instance_id or UNSET,
                )
                for one in found.targets
                if one.backend == each.name
            ],
        )
        for each in found.backends
    ]


def shown_replicas(found: LoadBalancer) -> Sequence[ReplicaRecord]:
    """Return the replicas of a load balancer for an answer."""
    return [ReplicaRecord(**structs.asdict(each)) for each in found.replicas]


def _shown_check(check: HealthCheck) -> HealthCheckRecord:
    path = UNSET if check.path is None else check.path
    return HealthCheckRecord(**structs.asdict(check) | {"path": path})


def _reference(found: LoadBalancer, to: Named, service: str, kind: str) -> ResourceRef:
    crn = f"crn:{service}:{found.region}:{found.account_id}:{kind}/{to.name}"
    return ResourceRef(id=to.id, crn=crn, name=to.name)
