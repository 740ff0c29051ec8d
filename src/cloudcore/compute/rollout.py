"""Decide from rows alone which instances of a pool to start, and which to stop.

An instance whose version differs from its pool's is replaced: one more instance is started, and
when that is ready, an old one is stopped, and so on. So a new version that fails does no harm: its
first instance is retried, and the old ones keep running.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from cloudcore.clock import MICROSECONDS
from cloudcore.compute.instance_pool import Instance, InstancePool, Status
from cloudcore.jobs.faults import Fault
from cloudcore.resources.resource import DELETING

READY_SECONDS: Final = 5
"""An instance without ports is ready after it has run this long."""
UNHEALTHY_SECONDS: Final = 60
"""An instance with ports is unhealthy if it accepts no connection this long after its start."""
STABLE_SECONDS: Final = 60
"""An instance that has ended before must have run this long before an old one is stopped for it."""
FIRST_PAUSE_SECONDS: Final = 1
LONGEST_PAUSE_SECONDS: Final = 60
MOST_EXITS: Final = 5
EXITS_SECONDS: Final = 600
"""An instance is crashing if it ended `MOST_EXITS` times within this time."""


class RolloutPlan(NamedTuple):
    """How many instances of a pool to start, and which to stop."""

    starts: int = 0
    stops: Sequence[Instance] = ()


def plan(pool: InstancePool, instances: Sequence[Instance], now: int) -> RolloutPlan:
    """Return how many instances of a pool to start, and which to stop."""
    staying = [each for each in instances if not each.is_leaving]
    if pool.status == DELETING:
        return RolloutPlan(stops=staying)
    version, total = pool.version, len(staying)
    current = [each for each in staying if each.version == version]
    old = [each for each in staying if each.version != version]
    if version is None or not old:  # there is nothing new yet, or nothing old any more
        starts = 0 if version is None else max(0, pool.size - total)
        return RolloutPlan(starts, _least_wanted(staying)[: max(0, total - pool.size)])
    if total > pool.size + 1:
        wanted_least = [*_least_wanted(old), *_least_wanted(current)]
        unready_first = sorted(wanted_least, key=lambda each: each.is_ready)
        return RolloutPlan(stops=unready_first[: total - pool.size - 1])
    if not all(is_stable(each, now) for each in current):
        return RolloutPlan()
    if total > pool.size:
        return RolloutPlan(stops=_least_wanted(old)[:1])
    if total < len(instances):  # leaving instances use memory until they are gone
        return RolloutPlan()
    return RolloutPlan(max(1, pool.size - total))


def _least_wanted(instances: Iterable[Instance]) -> list[Instance]:
    """Sort instances in the order in which to stop them: unready ones first, then newest first."""
    newest = sorted(instances, key=lambda each: each.id, reverse=True)
    return sorted(newest, key=lambda each: each.is_ready)


def is_stable(instance: Instance, now: int) -> bool:
    """Return True if an instance is ready and, if it has ended before, has run for a minute."""
    if not instance.is_ready or instance.started_at is None:
        return False
    return not instance.exits or now >= instance.started_at + STABLE_SECONDS * MICROSECONDS


def exits_after(instance: Instance, now: int) -> tuple[int, ...]:
    """Return an instance's exits of the last ten minutes, at most ten, with `now` as the last."""
    since = now - EXITS_SECONDS * MICROSECONDS
    return (*(each for each in instance.exits if each > since), now)[-_KEPT_EXITS:]


def pause_seconds(exits: Sequence[int]) -> float:
    """Return the pause before a restart after these recent exits: 1 s, doubled up to 60 s."""
    return float(min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (len(exits) - 1)))


_KEPT_EXITS: Final = 10
"""More than are needed to detect a crashing instance, and to reach the longest pause."""


def is_crashing(instance: Instance, now: int) -> bool:
    """Return True if an instance exited `MOST_EXITS` times or more in the last ten minutes."""
    since = now - EXITS_SECONDS * MICROSECONDS
    return sum(each > since for each in instance.exits) >= MOST_EXITS


def is_settled(pool: InstancePool, instances: Sequence[Instance]) -> bool:
    """Return True if a pool has as many instances as its size, all ready and of its version."""
    version = pool.version
    return (
        version is not None
        and len(instances) == pool.size
        and all(each.is_ready and each.version == version for each in instances)
    )


def told(pool: InstancePool, instances: Sequence[Instance], now: int) -> InstancePool:
    """Return a pool with its current status, and without the faults that no longer apply."""
    faults = tuple(each for each in pool.faults if not _is_over(each, pool, instances, now))
    status: Status = pool.status
    if status == DELETING:
        pass
    elif faults:
        status = "degraded"
    elif is_settled(pool, instances):
        status = "active"
    elif status == "active":
        status = "degraded"  # it was settled, and no change was requested
    return structs.replace(pool, status=status, faults=faults)


def stops_roll(pool: InstancePool, instance: Instance, instances: Sequence[Instance]) -> bool:
    """Return True if an instance has the pool's version while some still have another version.

    If such an instance fails, the rollout stops.
    """
    version = pool.version
    is_new = version is not None and instance.version == version
    return is_new and any(each.version != version and not each.is_leaving for each in instances)


def _is_over(fault: Fault, pool: InstancePool, instances: Sequence[Instance], now: int) -> bool:
    """Return True if a fault no longer applies; False for codes that are not listed here."""
    of = next((each for each in instances if each.id == fault.subject), None)
    match fault.code:
        case "INSTANCE_CRASHING":
            return of is None or (of.is_ready and not is_crashing(of, now))
        case "INSTANCE_FAILED":
            return of is None or of.is_ready
        case "NO_ADDRESS":
            return not plan(pool, instances, now).starts
        case "ROLL_STOPPED":
            return of is None or not stops_roll(pool, of, instances) or is_stable(of, now)
        case "ROLE_REFUSED":
            return of is None
    return False
