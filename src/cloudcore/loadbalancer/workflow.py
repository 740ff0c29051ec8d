"""The workflow of load balancers: set up, change and tear down; store and publish the status.

A teardown has these steps:

1. `detach`: the network no longer routes the address, and the interface is released.
2. `stop`: the proxies end.
3. `remove_role`: their role is deleted.
4. `release_vip`: the address is freed, in the transaction that deletes the record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.errors import PlatformError
from cloudcore.jobs.faults import Fault, add_fault
from cloudcore.loadbalancer import rows
from cloudcore.loadbalancer.driver import ProxyFailed, ReplicaState, TargetStatus
from cloudcore.loadbalancer.load_balancer import LOAD_BALANCER, MOST_REPLICAS, LoadBalancer, Replica
from cloudcore.loadbalancer.planning import RenderedPlan, certificate_file, render
from cloudcore.loadbalancer.rows import ROWS
from cloudcore.nodes.node import NODE_LOST
from cloudcore.resources.resource import DELETING
from cloudcore.resources.workflow import Goal, Problem, Step, StepAttempt, StepDone, StepRetry, Work

if TYPE_CHECKING:
    from cloudcore.loadbalancer.needs import LoadBalancerNeeds


def observed(found: LoadBalancer, seen: Iterable[ReplicaState]) -> LoadBalancer:
    """Return a load balancer with the observed state of its proxies.

    The status changes only between ``active`` and ``degraded``; the workflow sets the others.
    """
    by_number = {each.replica: each for each in seen}
    numbers = range(1, found.replica_count + 1)
    replicas = tuple(
        Replica(each, is_alive=each in by_number and by_number[each].is_alive) for each in numbers
    )
    alive = [each for each in by_number.values() if each.is_alive]
    targets = tuple(
        structs.replace(
            each, state=_state([one.targets.get((each.backend, each.id)) for one in alive])
        )
        for each in found.targets
    )
    status = found.status
    if status in ("active", "degraded"):
        is_well = all(each.is_alive for each in replicas) and not found.faults
        status = "active" if is_well else "degraded"
    return structs.replace(found, replicas=replicas, targets=targets, status=status)


def _state(seen: Iterable[TargetStatus | None]) -> TargetStatus:
    """Return the worst health that any proxy reports for a target; ``unknown`` if none does."""
    states = set(seen)
    return next((each for each in _WORST_FIRST if each in states), "unknown")


_WORST_FIRST: Final[tuple[TargetStatus, ...]] = ("unhealthy", "draining", "healthy")


REPLICA_FAILED: Final = "REPLICA_FAILED"
REPLICA_DIED: Final = "REPLICA_DIED"
CERTIFICATE_MISSING: Final = "CERTIFICATE_NOT_ISSUED"
CERTIFICATE_UNUSABLE: Final = "CERTIFICATE_UNUSABLE"
_TRIES: Final = 3
"""After so many failures, a load balancer without a live proxy has the status ``failed``. It is
still retried."""
_log = logging.getLogger(__name__)

Outcome = StepDone[LoadBalancer] | StepRetry[LoadBalancer]


def goal(found: LoadBalancer, _now: int) -> Goal | None:
    """Return the goal of a load balancer's next steps, or None if there is nothing to do."""
    if found.status == DELETING:
        return Goal("detach")
    return None if found.applied == found.generation else Goal("role", found.generation)


def _role_policy(found: LoadBalancer) -> Mapping[str, object]:
    """Return the policy of the proxies' role: read their certificates, report their metrics."""
    crns = [
        f"crn:certificate:{found.region}:{found.account_id}:certificate/{each.name}"
        for each in found.certificates.values()
    ]
    allowed = [("loadbalancer:PutLoadBalancerMetrics", [LOAD_BALANCER.crn_of(found)])]
    if crns:
        allowed.append(("certificate:GetCertificate", sorted(crns)))
    statements = [
        {"effect": "allow", "actions": [action], "resources": resources}
        for action, resources in allowed
    ]
    return {"version": "1", "statements": statements}


async def _role(found: LoadBalancer, needs: LoadBalancerNeeds, _attempt: StepAttempt) -> Outcome:
    """Create the role of the proxies, or update its policy if their certificates have changed."""
    if found.role_id is not None and found.fingerprints.keys() == found.certificates.keys():
        return StepDone(next="attach", keeps_faults=True)

    def make(tx: Connection, now: int) -> None:
        current = ROWS.try_lock(tx, found.account_id, found.id)
        if current is None:
            return
        made = needs.roles.platform_role(
            tx, found.account_id, f"load-balancer-{found.id}", _role_policy(current), now
        )
        ROWS.save(tx, structs.replace(current, role_id=made))

    await needs.database.write(make, needs.clock())
    return StepDone(next="attach", keeps_faults=True)


async def _attach(found: LoadBalancer, needs: LoadBalancerNeeds, _attempt: StepAttempt) -> Outcome:
    """Route the address to the VPC; without security groups, anybody can reach the listeners."""
    ruled_by = found.interface_id if found.security_groups else None
    await needs.network.add_vip(found.vpc.id, found.vip, ruled_by)
    return StepDone(next="replicas", keeps_faults=True)


async def _replicas(found: LoadBalancer, needs: LoadBalancerNeeds, attempt: StepAttempt) -> Outcome:
    """Start or reload the proxies one after another, and end surplus ones."""
    netns = needs.network.namespace_of(found.vpc.id)
    dialled = needs.dialled if netns is None else None
    made = await needs.database.read(render, found, needs.parts, dialled)
    files, fingerprints = {}, {}
    for each in found.certificates.values():
        try:
            servable = await needs.parts.certificates.open(
                needs.database, found.account_id, each.id
            )
        except PlatformError as error:  # the account's KMS key is disabled, or away
            words = f"the key of the certificate {each.name} cannot be used: {error.message}"
            return StepRetry(faults=[Problem(CERTIFICATE_UNUSABLE, words, each.id)])
        if servable is None:
            words = f"the certificate {each.name} is not issued yet, or was deleted"
            return StepRetry(faults=[Problem(CERTIFICATE_MISSING, words, each.id)])
        files[certificate_file(each.id)] = (
            servable.full_chain_pem.encode() + servable.private_key_pem
        )
        fingerprints[each.id] = servable.fingerprint
    try:
        for number in range(1, found.replica_count + 1):
            await needs.proxies.apply(made.plan, number, files, netns)
    except ProxyFailed as error:
        return await _failed(found, needs, attempt, error)
    for number in range(found.replica_count + 1, MOST_REPLICAS + 1):
        await needs.proxies.stop(found.id, number)
    return _applied(needs, attempt, made, fingerprints)


def _applied(
    needs: LoadBalancerNeeds,
    attempt: StepAttempt,
    made: RenderedPlan,
    fingerprints: Mapping[str, str],
) -> Outcome:
    """Return the outcome of a step that has made the proxies carry out the plan."""

    def change(current: LoadBalancer, now: int) -> LoadBalancer:
        faults = _with(current.faults, made.problems, now)
        status = current.status
        is_last = current.generation == attempt.goal.generation
        if is_last or status not in ("provisioning", "updating"):
            status = "degraded" if faults else "active"
        numbers = range(1, current.replica_count + 1)
        return structs.replace(
            current,
            applied=attempt.goal.generation,
            status=status,
            faults=faults,
            fingerprints=dict(fingerprints),
            replicas=tuple(Replica(number, is_alive=True) for number in numbers),
            targets=made.targets,
        )

    def note(tx: Connection, before: LoadBalancer, after: LoadBalancer) -> None:
        for each in before.fingerprints.keys() - after.certificates.keys():
            needs.parts.certificates.release(tx, each, after.crn)

    return StepDone(change=change, also=note, keeps_faults=True)


async def _failed(
    found: LoadBalancer, needs: LoadBalancerNeeds, attempt: StepAttempt, error: ProxyFailed
) -> Outcome:
    """Return a retry as the outcome of a step that could not start or change a proxy.

    After `_TRIES` tries, the status becomes ``failed`` if no proxy is alive.
    """
    _log.warning("the load balancer %s: %s", found.id, error)
    seen = await needs.proxies.seen(found.id)
    is_down = attempt.tries + 1 >= _TRIES and not any(each.is_alive for each in seen)

    def change(current: LoadBalancer, _now: int) -> LoadBalancer:
        return structs.replace(current, status="failed" if is_down else current.status)

    words = "a proxy could not be started or changed; the log of the machine says why"
    return StepRetry(change=change, faults=[Problem(REPLICA_FAILED, words)])


async def _detach(found: LoadBalancer, needs: LoadBalancerNeeds, _attempt: StepAttempt) -> Outcome:
    """Remove the address from the network, and release the interface."""
    await needs.network.remove_vip(found.vpc.id, found.vip)

    def change(current: LoadBalancer, _now: int) -> LoadBalancer:
        return structs.replace(current, interface_id=None)

    def release(tx: Connection, before: LoadBalancer, after: LoadBalancer) -> None:
        if before.interface_id is not None:
            needs.parts.interfaces.release(tx, before.interface_id, after.updated_at)

    return StepDone(change=change, also=release, next="stop")


async def _stop(found: LoadBalancer, needs: LoadBalancerNeeds, _attempt: StepAttempt) -> Outcome:
    """End the proxies once they have finished their connections; then release the certificates."""
    numbers = range(1, MOST_REPLICAS + 1)
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            group.create_task(needs.proxies.stop(found.id, number))

    def change(current: LoadBalancer, _now: int) -> LoadBalancer:
        return structs.replace(current, replicas=(), targets=(), fingerprints={})

    def release(tx: Connection, before: LoadBalancer, _after: LoadBalancer) -> None:
        for each in sorted(before.certificates.keys() | before.fingerprints.keys()):
            needs.parts.certificates.release(tx, each, before.crn)

    return StepDone(change=change, also=release, next="remove_role")


async def _remove_role(
    _found: LoadBalancer, needs: LoadBalancerNeeds, _attempt: StepAttempt
) -> Outcome:
    def change(current: LoadBalancer, _now: int) -> LoadBalancer:
        return structs.replace(current, role_id=None)

    def remove(tx: Connection, before: LoadBalancer, _after: LoadBalancer) -> None:
        if before.role_id is not None:
            needs.roles.remove_platform_role(tx, before.account_id, before.role_id)

    return StepDone(change=change, also=remove, next="release_vip")


async def _release_vip(
    _found: LoadBalancer, _needs: LoadBalancerNeeds, _attempt: StepAttempt
) -> Outcome:
    """Free the address in the transaction that deletes the record."""

    def release(tx: Connection, before: LoadBalancer, _after: LoadBalancer) -> None:
        rows.release_vip(tx, before)
        rows.forget_parts(tx, before)

    return StepDone(also=release)


def _with(faults: Sequence[Fault], problems: Iterable[Problem], now: int) -> tuple[Fault, ...]:
    """Return the faults with these problems in place of the previous ones.

    Only `NODE_LOST`, and faults that are among the problems again, stay.
    """
    new = {(each.code, each.subject): each for each in problems}
    found = [each for each in faults if each.code == NODE_LOST or (each.code, each.subject) in new]
    for each in new.values():
        found = add_fault(found, each.code, each.message, now, subject=each.subject)
    return tuple(found)


WORK: Final[Work[LoadBalancer, LoadBalancerNeeds]] = Work(
    ROWS,
    goal=goal,
    steps={
        "role": Step(_role, 2, 60),
        "attach": Step(_attach, 2, 60),
        "replicas": Step(_replicas, 2, 60),
        "detach": Step(_detach, 2, 60),
        "stop": Step(_stop, 2, 60),
        "remove_role": Step(_remove_role, 2, 60),
        "release_vip": Step(_release_vip, 2, 60),
    },
    name="loadbalancer.work",
    node_of=lambda found: found.node,
    events=lambda needs: needs.events,
)


def pool_changed(tx: Connection, account_id: str, pool_id: str, now: int) -> None:
    """Wake the workflows of load balancers with this pool as a target, to apply its changes."""
    for each in rows.using_pool(tx, account_id, pool_id):
        found = ROWS.find(tx, account_id, each)
        if found is None or found.status == DELETING:
            continue
        WORK.wake(tx, found, now)  # first: steps, too, lock the job before the record
        current = ROWS.try_lock(tx, account_id, each)
        if current is not None:
            ROWS.save(tx, structs.replace(current, generation=current.generation + 1))
