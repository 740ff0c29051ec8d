"""The work of instance pools that is no process: get their image, and wait for their end.

Processes are the reconciler's alone (`cloudcore.compute.reconciling`), so that no two ever start
the same instance.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cloudcore.compute.images import ImageRefused
from cloudcore.compute.instance_pool import COMPUTE_OFF, IMAGE_REFUSED, InstancePool
from cloudcore.compute.rows import POOLS, count_instances
from cloudcore.db.base import Connection
from cloudcore.nodes.rows import Placing
from cloudcore.resources.record import DELETING
from cloudcore.work import Again, Came, Problem, Step, Turn, Wish, Work

if TYPE_CHECKING:
    from cloudcore.compute.needs import ComputeNeeds

Outcome = Came[InstancePool] | Again[InstancePool]
_LOOK_SECONDS: Final = 0.5
_OFF: Final = Problem(
    COMPUTE_OFF,
    "this pool's machine runs no instances (any more): its operator sets compute_driver",
)


def wish(pool: InstancePool, _now: int) -> Wish | None:
    """Return what is to be done with a pool."""
    if pool.status == DELETING:
        return Wish("end")
    if pool.fetched != pool.generation:
        return Wish("fetch", pool.generation)
    return None


async def _fetch(found: InstancePool, needs: ComputeNeeds, _turn: Turn) -> Outcome:
    """Get the image on this machine; instances are started with it from then on."""
    if needs.driver is None:
        return Again(faults=[_OFF])
    try:
        root = await needs.images.fetch(found.account_id, found.role, found.image)
    except ImageRefused as refused:
        return Again(faults=[Problem(IMAGE_REFUSED, str(refused))])
    return Came(change=partial(_fetched, root.digest, found.generation), keeps_faults=True)


def _fetched(digest: str, generation: int, current: InstancePool, _now: int) -> InstancePool:
    if current.generation != generation:
        return current
    is_over = IMAGE_REFUSED, COMPUTE_OFF
    faults = tuple(each for each in current.faults if each.code not in is_over)
    return structs.replace(current, image_digest=digest, fetched=generation, faults=faults)


async def _end(found: InstancePool, needs: ComputeNeeds, _turn: Turn) -> Outcome:
    """Wait until nothing of any instance is left."""
    if await needs.database.read(count_instances, found.account_id, found.id):
        return Again(seconds=_LOOK_SECONDS) if needs.driver else Again(faults=[_OFF])

    def tell(tx: Connection, current: InstancePool, _after: InstancePool) -> None:
        needs.pool_changed(tx, current.account_id, current.id, needs.clock())

    return Came(also=tell)


WORK: Final[Work[InstancePool, ComputeNeeds]] = Work(
    POOLS,
    wish=wish,
    steps={"fetch": Step(_fetch), "end": Step(_end)},
    step_seconds=1800,  # of an image of many gigabytes
    node_of=lambda pool: pool.node,
)
PLACING: Final = Placing(POOLS, WORK.wake)
