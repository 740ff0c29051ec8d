"""Changes of instances' rows, each in one transaction; the reconciler calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from cloudcore.compute import rollout
from cloudcore.compute.instance_pool import (
    INSTANCE,
    INSTANCE_CRASHING,
    INSTANCE_FAILED,
    INSTANCE_POOL,
    ROLL_STOPPED,
    Instance,
    InstancePool,
    InstanceStatus,
)
from cloudcore.compute.rows import INSTANCE_ROWS, POOLS, all_instances
from cloudcore.db.base import Connection
from cloudcore.jobs.queue import later
from cloudcore.resources.resource import DELETING, Reference

if TYPE_CHECKING:
    from cloudcore.compute.needs import ComputeNeeds

DRAIN_SECONDS: Final = 5
"""How long a ready instance keeps running after load balancers were told to stop using it."""


def add(tx: Connection, seen: InstancePool, needs: ComputeNeeds, now: int) -> Instance | None:
    """Insert an instance of a pool, with an address if the pool has a subnet.

    Return None if the pool was changed meanwhile, is gone, or is being deleted.

    Raise `PlatformError` if the subnet has no address left, or is gone.
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


def note_fault(
    tx: Connection, of: InstancePool | Instance, code: str, words: str, now: int
) -> None:
    """Add a fault to the pool `of`; if `of` is an instance, add a fault about it to its pool."""
    pool_id, subject = (of.pool.id, of.id) if isinstance(of, Instance) else (of.id, "")
    POOLS.change(
        tx, of.account_id, pool_id, lambda one: one.with_fault(code, words, now, subject), now
    )


def mark_leaving(
    tx: Connection, seen: Instance, needs: ComputeNeeds, now: int, *, at_once: bool
) -> Instance | None:
    """Mark an instance as leaving; load balancers stop using it before its program is stopped.

    Return the instance, or None if its row is gone. `at_once`: stop it without that delay.
    """
    found = _locked(tx, seen)
    if found is None or found.is_leaving:
        return found
    drains = found.is_ready and bool(found.ports) and not at_once
    until = later(now, DRAIN_SECONDS) if drains else now
    changed = structs.replace(found, status="stopping", not_before=until, updated_at=now)
    INSTANCE_ROWS.save(tx, changed)
    needs.pool_changed(tx, found.account_id, found.pool.id, now)
    return changed


def store_running(
    tx: Connection,
    seen: Instance,
    status: InstanceStatus,
    started_at: int | None,
    needs: ComputeNeeds,
    now: int,
) -> Instance | None:
    """Store that the program of an instance runs, and its `status`.

    Return the stored instance, unchanged if it is leaving, or None if its row is gone.
    """
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


def store_end(
    tx: Connection,
    seen: Instance,
    exit_code: int | None,
    problem: str,
    needs: ComputeNeeds,
    now: int,
) -> Instance | None:
    """Store that an instance's program has ended, and when to restart it.

    `problem` is why it could not be started; empty if it was. Return the stored instance, unchanged
    if it is leaving, or None if its row is gone.
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
    if problem:
        note_fault(tx, found, INSTANCE_FAILED, problem, now)
    if rollout.is_crashing(changed, now):
        often = f"{words}; it ended {rollout.MOST_EXITS} times or more in ten minutes"
        note_fault(tx, found, INSTANCE_CRASHING, often, now)
    _note_stopped_roll(tx, pool, changed, words, now)
    return changed


def note_restart(tx: Connection, seen: Instance, now: int) -> Instance | None:
    """Store that a stopped instance is started again.

    Return the stored instance, unchanged if it is not stopped, or None if its row is gone.
    """
    found = _locked(tx, seen)
    if found is None or found.status != "stopped":
        return found
    restarts = found.restarts + 1
    changed = structs.replace(
        found, status="starting", restarts=restarts, not_before=None, updated_at=now
    )
    return INSTANCE_ROWS.save(tx, changed)


def delete_instance(tx: Connection, seen: Instance, needs: ComputeNeeds, now: int) -> None:
    """Delete the row of an instance that is gone, end its sessions, and release its addresses."""
    found = _locked(tx, seen)
    if found is None:
        return
    INSTANCE_ROWS.remove(tx, found, now)
    needs.roles.end(tx, found.account_id, found.id, now)
    if found.interface_id is not None:
        needs.interfaces.release(tx, found.interface_id, now)
    needs.pool_changed(tx, found.account_id, found.pool.id, now)


def update_pool_status(tx: Connection, seen: InstancePool, needs: ComputeNeeds, now: int) -> None:
    """Update the status of a pool, and remove the faults that no longer apply.

    Publish an event if its status changed.
    """
    of = seen.account_id, seen.id
    changed = POOLS.change(
        tx, *of, lambda pool: rollout.told(pool, all_instances(tx, *of), now), now
    )
    if changed is not None:
        INSTANCE_POOL.tell_state(needs.events, tx, *changed)


def is_staying(tx: Connection, instance_id: str, account_id: str) -> bool:
    """Return True if an instance has a row and is not leaving."""
    found = INSTANCE_ROWS.find(tx, account_id, instance_id)
    return found is not None and not found.is_leaving


def holds(tx: Connection, instance_id: str, account_id: str) -> bool:
    """Lock an instance's row until `tx` ends; return True if it exists and is not leaving."""
    found = INSTANCE_ROWS.try_lock(tx, account_id, instance_id)
    return found is not None and not found.is_leaving


def _note_stopped_roll(
    tx: Connection, pool: InstancePool, instance: Instance, words: str, now: int
) -> None:
    """Add a fault to a pool if the failure of this instance stops the rollout of a new version."""
    if rollout.stops_roll(pool, instance, all_instances(tx, pool.account_id, pool.id)):
        why = f"the new version does not take over: {words}; the other instances go on"
        note_fault(tx, instance, ROLL_STOPPED, why, now)


def _locked(tx: Connection, seen: Instance) -> Instance | None:
    return INSTANCE_ROWS.try_lock(tx, seen.account_id, seen.id)


def _locked_pool(tx: Connection, of: InstancePool | Instance) -> InstancePool | None:
    return POOLS.try_lock(tx, of.account_id, of.pool.id if isinstance(of, Instance) else of.id)
