"""What state a load balancer is in, and who is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.events import Events
from cloudcore.loadbalancer.driver import ReplicaSeen, TargetStatus
from cloudcore.loadbalancer.load_balancer import (
    ACTIVE,
    DEGRADED,
    FAILED,
    LoadBalancer,
    Replica,
)

_TOLD: Final = {"active": ACTIVE, "degraded": DEGRADED, "failed": FAILED}


def tell_status(events: Events, tx: Connection, before: LoadBalancer, after: LoadBalancer) -> None:
    """Tell the account's topics that a load balancer has another state."""
    if after.status in _TOLD and after.status != before.status:
        event = _TOLD[after.status]
        events.tell(tx, after.account_id, event, [after.told], after.updated_at)


def observed(found: LoadBalancer, seen: Iterable[ReplicaSeen]) -> LoadBalancer:
    """Return a load balancer with what its proxies were seen to do.

    One that is being changed or torn down keeps its state: its work says what follows.
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
    """Return the state of a target that some proxies see: the worst that one of them knows."""
    states = set(seen)
    for state in _WORST_FIRST:
        if state in states:
            return state
    return "unknown"


_WORST_FIRST: Final[tuple[TargetStatus, ...]] = ("unhealthy", "draining", "healthy")
