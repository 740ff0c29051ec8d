"""Make the plan for a load balancer's proxies from the rows."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.loadbalancer.driver import (
    BackendPlan,
    HealthPlan,
    ListenerPlan,
    ProxyPlan,
    TargetPlan,
)
from cloudcore.loadbalancer.load_balancer import Backend, LoadBalancer, Target, TargetState
from cloudcore.loadbalancer.needs import Parts, PoolTarget, Ranges
from cloudcore.network import rows
from cloudcore.resources.workflow import Problem

OUTSIDE = "TARGET_OUTSIDE"
NO_POOL = "POOL_DELETED"


class RenderedPlan(NamedTuple):
    """A plan for the proxies, with its targets and the problems found."""

    plan: ProxyPlan
    targets: tuple[TargetState, ...]
    """The targets in the plan, with the states that were reported last."""
    problems: tuple[Problem, ...]
    """What was left out of the plan, and why."""


class Reach(NamedTuple):
    """The addresses that the proxies of a load balancer may connect to."""

    subnets: Ranges
    """The ranges of the VPC's subnets; no target is outside."""
    dialled: Ranges | None
    """None if the VPC has its own network namespace; else the addresses in the machine's network
    that the proxies may connect to."""

    def allows(self, address: str) -> bool:
        """Return True if the proxies may connect to an address."""
        found = ip_address(address)
        ways = (self.subnets,) if self.dialled is None else (self.subnets, self.dialled)
        return all(any(found in each for each in ranges) for ranges in ways)


def certificate_file(certificate_id: str) -> str:
    """Return the name by which plans refer to the file of a certificate."""
    return f"{certificate_id}.pem"


def subnet_ranges(tx: Connection, of: LoadBalancer) -> Ranges:
    """Return the ranges of all subnets of the VPC of a load balancer."""
    found = rows.of_vpc(tx, rows.SUBNETS, of.account_id, of.vpc.id)
    return [ip_network(text) for each in found for text in (each.cidr_ipv4, each.cidr_ipv6) if text]


def render(
    tx: Connection, found: LoadBalancer, parts: Parts, dialled: Ranges | None
) -> RenderedPlan:
    """Return the current plan for a load balancer's proxies.

    `dialled` is None if the VPC has its own network namespace (`Reach.dialled`).
    """
    reach = Reach(subnet_ranges(tx, found), dialled)
    before = {(each.backend, each.id): each for each in found.targets}
    backends, targets, problems = [], [], []
    for backend in found.backends:
        plans = []
        for plan, seen in _targets(tx, found, backend, parts):
            if isinstance(plan, Problem):
                problems.append(plan)
            elif plan.address is not None and not reach.allows(plan.address):
                words = f"{plan.address} of the backend {backend.name} is in no subnet of the VPC"
                if dialled is not None:
                    words += " that this install connects to (balancer_targets)"
                problems.append(Problem(OUTSIDE, words, f"{backend.name} {plan.id}"))
            elif not plan.is_draining or (backend.name, plan.id) in before:
                known = before.get((backend.name, plan.id), seen)
                plans.append(plan)
                targets.append(structs.replace(seen, state=known.state))
        health = HealthPlan(**structs.asdict(backend.health_check))
        backends.append(BackendPlan(backend.name, backend.protocol, health, tuple(plans)))
    whole = ProxyPlan(found.id, found.vip, _listeners(found), tuple(backends))
    return RenderedPlan(whole, tuple(targets), tuple(problems))


def has_moved(tx: Connection, found: LoadBalancer, dialled: Ranges | None) -> bool:
    """Return True if a target has left or entered the allowed addresses since the last plan."""
    given = {
        (backend.name, _ident(each)): each.address
        for backend in found.backends
        for each in backend.targets
        if each.address
    }
    if not given:
        return False
    reach = Reach(subnet_ranges(tx, found), dialled)
    has = {(each.backend, each.id) for each in found.targets}
    return any(reach.allows(address) != (each in has) for each, address in given.items())


def _ident(target: Target) -> str:
    return f"{target.address} {target.port}"


def _listeners(found: LoadBalancer) -> tuple[ListenerPlan, ...]:
    return tuple(
        ListenerPlan(
            each.port,
            each.protocol,
            each.backend,
            None if each.certificate is None else certificate_file(each.certificate.id),
        )
        for each in found.listeners
    )


def _targets(
    tx: Connection, found: LoadBalancer, backend: Backend, parts: Parts
) -> Iterator[tuple[TargetPlan | Problem, TargetState]]:
    """Yield the targets of a backend: a pool's instances, or a problem if the pool was deleted."""
    for each in backend.targets:
        if each.pool is None:
            ident = _ident(each)
            plan = TargetPlan(ident, address=each.address, port=each.port)
            yield plan, TargetState(backend.name, ident, each.port, address=each.address)
            continue
        try:
            parts.pools.pool(tx, found.account_id, found.region, each.pool.id)
        except NotFound:
            words = f"the pool {each.pool.name} of the backend {backend.name} was deleted"
            problem = Problem(NO_POOL, words, f"{backend.name} {each.pool.id}")
            yield problem, TargetState(backend.name, "", each.port)
            continue
        for instance in parts.pools.targets(tx, found.account_id, each.pool.id):
            if instance.address is not None or instance.socket_folder is not None:
                yield _of_pool(backend, each, instance)


def _of_pool(
    backend: Backend, target: Target, instance: PoolTarget
) -> tuple[TargetPlan, TargetState]:
    """Return an instance as a target; if it is not ready, it gets no new connections."""
    ident, drains = f"{instance.instance_id} {target.port}", not instance.is_ready
    if instance.socket_folder is not None:
        socket = str(instance.socket_folder / str(target.port))
        plan = TargetPlan(ident, socket=socket, is_draining=drains)
    else:
        plan = TargetPlan(ident, address=instance.address, port=target.port, is_draining=drains)
    seen = TargetState(
        backend.name,
        ident,
        target.port,
        address=instance.address or "",
        instance_id=instance.instance_id,
    )
    return plan, seen
