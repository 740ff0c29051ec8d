"""Changes of instances' rows, each in one transaction, made by the reconciler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from cloudcore.compute import rollout
from cloudcore.compute.instance_pool import (
    ACTIVE,
    DEGRADED,
    INSTANCE,
    INSTANCE_CRASHING,
    INSTANCE_FAILED,
    NO_ADDRESS,
    ROLL_STOPPED,
    Instance,
    InstancePool,
    InstanceStatus,
)
from cloudcore.compute.rows import INSTANCE_ROWS, POOLS, list_instances
from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.jobs.faults import add_fault
from cloudcore.jobs.queue import later
from cloudcore.resources.resource import DELETING, Reference

if TYPE_CHECKING:
    from cloudcore.compute.needs import ComputeNeeds

DRAIN_SECONDS: Final = 5
"""For so long a ready instance goes on after it was taken from load balancers."""
_TOLD: Final = {"active": ACTIVE, "degraded": DEGRADED}
_MOST: Final = 100
"""More than a pool ever has."""


def add(tx: Connection, seen: InstancePool, needs: ComputeNeeds, now: int) -> Instance | None:
    """Insert an instance of a pool, with an address if the pool has a subnet.

    Return None if the pool was changed meanwhile.

    Raises:
        PlatformError: the subnet has no address left, or is gone.

    """
    pool = _locked_pool(tx, seen)
    if pool is None or (pool.version, pool.size) != (seen.version, seen.size):
        return None
    if pool.status == DELETING or (version := pool.version) is None:
        return None
    new = Instance(
        id=needs.new_id(),
        account_id=pool.account_id,
        region=pool.region,
        created_at=now,
        updated_at=now,
        pool=Reference(pool.id, pool.name),
        node=pool.node,
        image=pool.image,
        image_digest=version.image_digest,
        version=version,
        memory_mb=version.memory_mb,
        cpu_millis=version.cpu_millis,
        ports=pool.ports,
    )
    if pool.subnet is not None:
        place = pool.account_id, pool.region, pool.subnet, pool.security_groups
        made = needs.interfaces.place(tx, *place, INSTANCE.crn_of(new), now)
        new = structs.replace(
            new,
            interface_id=made.id,
            address=made.address_ipv4 or made.address_ipv6,
            address_ipv6=made.address_ipv6,
        )
    return INSTANCE_ROWS.add(tx, new)


def note_no_address(tx: Connection, seen: InstancePool, words: str, now: int) -> None:
    """Add the fault to a pool that an instance gets no address."""
    pool = _locked_pool(tx, seen)
    if pool is not None:
        faults = tuple(add_fault(pool.faults, NO_ADDRESS, words, now))
        POOLS.save(tx, structs.replace(pool, faults=faults, updated_at=now))


def let_go(
    tx: Connection, seen: Instance, needs: ComputeNeeds, now: int, *, at_once: bool
) -> Instance | None:
    """Mark an instance as leaving; load balancers stop using it before its program is stopped."""
    found = _locked(tx, seen)
    if found is None or found.is_leaving:
        return found
    drains = found.is_ready and bool(found.ports) and not at_once
    until = later(now, DRAIN_SECONDS) if drains else now
    changed = structs.replace(found, status="stopping", not_before=until, updated_at=now)
    INSTANCE_ROWS.save(tx, changed)
    needs.pool_changed(tx, found.account_id, found.pool.id, now)
    return changed


def note_up(
    tx: Connection,
    seen: Instance,
    status: InstanceStatus,
    started_at: int | None,
    needs: ComputeNeeds,
    now: int,
) -> Instance | None:
    """Store that the program of an instance runs, and whether it is ready."""
    pool, found = _locked_pool(tx, seen), _locked(tx, seen)
    if pool is None or found is None or found.is_leaving:
        return found
    changed = structs.replace(
        found, status=status, started_at=started_at, not_before=None, updated_at=now
    )
    INSTANCE_ROWS.save(tx, changed)
    if changed.is_ready != found.is_ready:
        needs.pool_changed(tx, found.account_id, found.pool.id, now)
    if status == "unhealthy":
        _note_stopped_roll(tx, pool, changed, "its port takes no connection", now)
    return changed


def note_end(
    tx: Connection,
    seen: Instance,
    exit_code: int | None,
    problem: str,
    needs: ComputeNeeds,
    now: int,
) -> Instance | None:
    """Store that the program of an instance has ended, and when to start it again.

    `problem` is the reason, if it could not be started.
    """
    pool, found = _locked_pool(tx, seen), _locked(tx, seen)
    if pool is None or found is None or found.is_leaving:
        return found
    exits = rollout.exits_after(found, now)
    changed = structs.replace(
        found,
        status="stopped",
        exit_code=exit_code,
        exits=exits,
        not_before=later(now, rollout.pause_seconds(exits)),
        updated_at=now,
    )
    INSTANCE_ROWS.save(tx, changed)
    if found.is_ready:
        needs.pool_changed(tx, found.account_id, found.pool.id, now)
    words = problem or f"its program ended{'' if exit_code is None else f' with {exit_code}'}"
    faults = pool.faults
    if problem:
        faults = (*add_fault(faults, INSTANCE_FAILED, problem, now, subject=found.id),)
    if rollout.is_crashing(changed, now):
        often = f"{words}; it ended {rollout.MOST_EXITS} times or more in ten minutes"
        faults = (*add_fault(faults, INSTANCE_CRASHING, often, now, subject=found.id),)
    if faults != pool.faults:
        pool = POOLS.save(tx, structs.replace(pool, faults=faults, updated_at=now))
    _note_stopped_roll(tx, pool, changed, words, now)
    return changed


def note_restart(tx: Connection, seen: Instance, now: int) -> Instance | None:
    """Store that an instance is started again."""
    found = _locked(tx, seen)
    if found is None or found.status != "stopped":
        return found
    restarts = found.restarts + 1
    changed = structs.replace(
        found, status="starting", restarts=restarts, not_before=None, updated_at=now
    )
    return INSTANCE_ROWS.save(tx, changed)


def note_stuck(tx: Connection, seen: Instance, words: str, now: int) -> None:
    """Add the fault to a pool that something fails with an instance; it is tried again."""
    pool = _locked_pool(tx, seen)
    if pool is not None:
        faults = (*add_fault(pool.faults, INSTANCE_FAILED, words, now, subject=seen.id),)
        POOLS.save(tx, structs.replace(pool, faults=faults, updated_at=now))


def note_gone(tx: Connection, seen: Instance, needs: ComputeNeeds, now: int) -> None:
    """Delete the row of an instance that has nothing left on the machine, and end its sessions."""
    found = _locked(tx, seen)
    if found is None:
        return
    INSTANCE_ROWS.remove(tx, found, now)
    needs.roles.end(tx, found.account_id, found.id, now)
    if found.interface_id is not None:
        needs.interfaces.release(tx, found.interface_id, now)
    needs.pool_changed(tx, found.account_id, found.pool.id, now)


def note_told(tx: Connection, seen: InstancePool, needs: ComputeNeeds, now: int) -> None:
    """Store the status of a pool and remove the faults that are over.

    Publish its change of status.
    """
    pool = _locked_pool(tx, seen)
    if pool is None:
        return
    mine = list_instances(tx, pool.account_id, pool.id, "", _MOST)
    changed = rollout.told(pool, mine, now)
    if changed == pool:
        return
    changed = POOLS.save(tx, structs.replace(changed, updated_at=now))
    if changed.status != pool.status and changed.status in _TOLD:
        about = changed.told
        needs.events.tell(tx, pool.account_id, _TOLD[changed.status], [about], now)


def is_staying(tx: Connection, instance_id: str, account_id: str) -> bool:
    """Return True if an instance is to keep running."""
    found = INSTANCE_ROWS.find(tx, account_id, instance_id)
    return found is not None and not found.is_leaving


def holds(tx: Connection, instance_id: str, account_id: str) -> bool:
    """Return True if an instance is to keep running, and lock its row until `tx` ends."""
    try:
        return not INSTANCE_ROWS.lock(tx, account_id, instance_id).is_leaving
    except NotFound:
        return False


def _note_stopped_roll(
    tx: Connection, pool: InstancePool, instance: Instance, words: str, now: int
) -> None:
    """Add the fault to a pool that its new version fails, if its rollout stops for that."""
    mine = list_instances(tx, pool.account_id, pool.id, "", _MOST)
    if rollout.stops_roll(pool, instance, mine):
        why = f"the new version does not take over: {words}; the other instances go on"
        faults = (*add_fault(pool.faults, ROLL_STOPPED, why, now, subject=instance.id),)
        POOLS.save(tx, structs.replace(pool, faults=faults, updated_at=now))


def _locked(tx: Connection, seen: Instance) -> Instance | None:
    try:
        return INSTANCE_ROWS.lock(tx, seen.account_id, seen.id)
    except NotFound:
        return None


def _locked_pool(tx: Connection, of: InstancePool | Instance) -> InstancePool | None:
    try:
        return POOLS.lock(tx, of.account_id, of.pool.id if isinstance(of, Instance) else of.id)
    except NotFound:
        return None
