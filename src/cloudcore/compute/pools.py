"""Create, change, delete and show instance pools, and run their workflow.

The workflow only fetches the image and, to delete a pool, waits until all instances have ended.
Only the reconciler (`cloudcore.compute.reconciler`) starts and stops processes, so that an instance
is never started twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from cloudcore.account_rows import lock_account
from cloudcore.compute.images import ImageRefused
from cloudcore.compute.instance_pool import COMPUTE_OFF, IMAGE_REFUSED, InstancePool, check_pool
from cloudcore.compute.rows import (
    POOLS,
    WANTED_INSTANCES,
    WANTED_MEMORY,
    all_instances,
    count_instances,
)
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, invalid_field
from cloudcore.iam.service_roles import PASS_ROLE
from cloudcore.nodes.rows import Placing, can_run, choose
from cloudcore.resource_names import Crn
from cloudcore.resource_references import Authorize, RightTo
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import DELETING
from cloudcore.resources.workflow import Goal, Problem, Step, StepAttempt, StepDone, StepRetry, Work
from cloudcore.web.bodies import ResourceRef

if TYPE_CHECKING:
    from cloudcore.compute.needs import ComputeNeeds

Outcome = StepDone[InstancePool] | StepRetry[InstancePool]
_LOOK_SECONDS: Final = 0.5
_OFF: Final = Problem(
    COMPUTE_OFF,
    "this pool's machine runs no instances (any more): its operator sets compute_driver",
)


def goal(pool: InstancePool, _now: int) -> Goal | None:
    """Return the goal of a pool's next step, or None if there is nothing to do."""
    if pool.status == DELETING:
        return Goal("end")
    if pool.fetched != pool.generation:
        return Goal("fetch", pool.generation)
    return None


async def _fetch(found: InstancePool, needs: ComputeNeeds, _attempt: StepAttempt) -> Outcome:
    """Fetch the image to this machine; then instances are started with it."""
    if needs.driver is None:
        return StepRetry(faults=[_OFF])
    try:
        root = await needs.images.fetch(found.account_id, found.role, found.image)
    except ImageRefused as refused:
        return StepRetry(faults=[Problem(IMAGE_REFUSED, str(refused))])

    def fetched(current: InstancePool, _now: int) -> InstancePool:
        generation = found.generation
        if current.generation != generation:
            return current
        is_over = IMAGE_REFUSED, COMPUTE_OFF
        faults = tuple(each for each in current.faults if each.code not in is_over)
        return structs.replace(current, image_digest=root.digest, fetched=generation, faults=faults)

    return StepDone(change=fetched, keeps_faults=True)


async def _end(found: InstancePool, needs: ComputeNeeds, _attempt: StepAttempt) -> Outcome:
    """Retry until all instances of a deleted pool are gone."""
    if await needs.database.read(count_instances, found.account_id, found.id):
        return StepRetry(seconds=_LOOK_SECONDS) if needs.driver else StepRetry(faults=[_OFF])

    def emit_event(tx: Connection, current: InstancePool, _after: InstancePool) -> None:
        needs.pool_changed(tx, current.account_id, current.id, needs.clock())

    return StepDone(also=emit_event)


WORK: Final[Work[InstancePool, ComputeNeeds]] = Work(
    POOLS,
    goal=goal,
    steps={"fetch": Step(_fetch), "end": Step(_end)},
    step_seconds=1800,  # an image of many gigabytes takes so long
    node_of=lambda pool: pool.node,
)
PLACING: Final = Placing(POOLS, WORK.wake)


CAPABILITY: Final = "instances"
_PROGRAM: Final = ("image", "command", "environment")
_SCALED: Final = (*_PROGRAM, "memory_mb", "cpu_millis", "size")


class PoolTarget(NamedTuple):
    """An instance, as load balancers see it."""

    instance_id: str
    address: str | None
    """The address in its subnet; None if it has none, or has a socket folder instead."""
    socket_folder: Path | None
    """The folder with a socket for each port of its program; None on other machines, and if it has
    an address."""
    is_ready: bool


def _role(pool: InstancePool) -> ResourceRef | None:
    return _reference(pool, pool.role, "iam", "role", "")


def _subnet(pool: InstancePool) -> ResourceRef | None:
    return _reference(pool, pool.subnet, "network", "subnet", pool.region)


def _groups(pool: InstancePool) -> Sequence[ResourceRef]:
    of = "network", "security-group", pool.region
    return [each for one in pool.security_groups if (each := _reference(pool, one, *of))]


def _reference(
    pool: InstancePool, of_id: str | None, service: str, kind: str, region: str
) -> ResourceRef | None:
    if of_id is None:
        return None
    name = pool.names.get(of_id, "")
    crn = str(Crn(service, region, pool.account_id, kind, name))
    return ResourceRef(id=of_id, crn=crn, name=name)


INSTANCE_POOLS: Final = Methods(
    POOLS,
    check=check_pool,
    before_lock=WORK.wake,
    before_save=WORK.begin,
    removal=WORK.delete,
    composites=(
        Composite(name="role", shown=ResourceRef | None, show=_role),
        Composite(name="subnet", shown=ResourceRef | None, show=_subnet),
        Composite(name="security_groups", shown=Sequence[ResourceRef], show=_groups),
    ),
)


def create(
    tx: Connection, new: InstancePool, needs: ComputeNeeds, right_to: RightTo
) -> InstancePool:
    """Insert a pool, on the machine of its subnet or else on any machine that runs instances.

    Raises:
        InvalidInput, AccessDenied, NotFound: as `cloudcore.resource_references.resolve`.
        Conflict: the pool's name is taken, or no machine runs instances.
        QuotaExceeded: the account has reached its quota.

    """
    lock_account(tx, new.account_id)  # first: `can_run` locks the machine's row
    place, names = (new.account_id, new.region), dict[str, str]()
    role = subnet = vpc_id = None
    node: str | None
    if new.role is not None:
        found = needs.roles.resolve(tx, new.account_id, "role", new.role, right_to(PASS_ROLE))
        role, names[found.id] = found.id, found.name
    if new.subnet is not None:
        of = needs.interfaces.subnet(tx, *place, new.subnet, right_to("network:GetSubnet"))
        subnet, names[of.id] = of.id, of.name
        vpc_id, node = of.vpc_id, of.node
        if not can_run(tx, node, CAPABILITY):
            raise _no_machine(f"the machine {node}, which its subnet is on, runs no instances")
    elif (node := choose(tx, CAPABILITY, new.created_at)) is None:
        raise _no_machine("no machine runs instances")
    new = structs.replace(new, role=role, subnet=subnet, vpc_id=vpc_id, node=node, names=names)
    if new.security_groups:
        new = _with_groups(tx, new, needs, right_to)
    _check_room(tx, new, None)
    return INSTANCE_POOLS.create(tx, new)


def update(
    tx: Connection,
    found: InstancePool,
    changes: Mapping[str, Any],
    needs: ComputeNeeds,
    right_to: RightTo,
    now: int,
) -> InstancePool:
    """Change fields of a pool; the reconciler later starts, stops or replaces instances.

    Raises:
        InvalidInput, AccessDenied, NotFound: as `cloudcore.resource_references.resolve`;
            `NotFound` also if the pool is gone.
        Conflict: the pool is being deleted.
        QuotaExceeded: the account has reached its quota.

    """
    lock_account(tx, found.account_id)
    WORK.wake(tx, found, now)  # first: steps, too, lock the job before the record
    old = POOLS.lock(tx, found.account_id, found.id)
    changed = check_pool(structs.replace(old, **changes), old, now)
    if "security_groups" in changes:
        if old.security_groups and not changed.security_groups:
            raise invalid_field(
                "security_groups", "at least one; the VPC's default group has a name too"
            )
        changed = _with_groups(tx, changed, needs, right_to) if changed.security_groups else changed
    if changed == old:
        return old
    if (role := _role(old)) is not None and _differ(changed, old, _PROGRAM):
        right_to(PASS_ROLE)(role.crn)  # another program would get the role's rights
    WORK.begin(tx, structs.replace(changed, updated_at=now), old)
    _check_room(tx, changed, old)
    if changed.image != old.image:
        changed = structs.replace(changed, generation=old.generation + 1)
    if changed.security_groups != old.security_groups:
        for each in all_instances(tx, old.account_id, old.id):
            if each.interface_id is not None:
                needs.interfaces.set_groups(tx, each.interface_id, changed.security_groups, now)
    if old.status != "provisioning" and _differ(changed, old, _SCALED):
        changed = structs.replace(changed, status="scaling")
    return POOLS.save(tx, structs.replace(changed, updated_at=now))


class PoolTargets:
    """Instance pools, as load balancers see them."""

    def __init__(self, needs: ComputeNeeds) -> None:
        self._needs = needs

    def pool(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        reference: str,
        authorize: Authorize | None = None,
    ) -> InstancePool:
        """Return the pool of an id, a name or a CRN; errors as `resource_references.resolve`."""
        return POOLS.resolve(tx, account_id, region, "pool", reference, authorize)

    def targets(self, tx: Connection, account_id: str, pool_id: str) -> Sequence[PoolTarget]:
        """Return a pool's instances as targets; empty if the pool is deleted.

        An instance can be reached only from this machine, unless networks have namespaces.
        """
        pool, needs = POOLS.find(tx, account_id, pool_id), self._needs
        if pool is None:
            return ()
        vpc = pool.vpc_id
        has_network = vpc is not None and needs.network.namespace_of(vpc) is not None
        is_here = needs.driver is not None and pool.node == needs.node.name and not has_network
        return [
            PoolTarget(
                each.id,
                each.address if has_network else None,
                needs.driver.folder(each.id) / "ports" if needs.driver and is_here else None,
                each.is_ready,
            )
            for each in all_instances(tx, account_id, pool_id)
        ]


def _with_groups(
    tx: Connection, pool: InstancePool, needs: ComputeNeeds, right_to: RightTo
) -> InstancePool:
    assert pool.vpc_id is not None
    of = pool.account_id, pool.region, pool.vpc_id, pool.security_groups
    found = needs.interfaces.security_groups(tx, *of, right_to("network:GetSecurityGroup"))
    names = {**pool.names, **{each.id: each.name for each in found}}
    return structs.replace(pool, security_groups=[each.id for each in found], names=names)


def _differ(one: InstancePool, other: InstancePool, names: Sequence[str]) -> bool:
    return any(getattr(one, each) != getattr(other, each) for each in names)


def _no_machine(words: str) -> Conflict:
    words = f"{words}: the operator sets compute_driver"
    return Conflict(words, reason="no_machine", setting="compute_driver")


def _check_room(tx: Connection, new: InstancePool, old: InstancePool | None) -> None:
    """Raise `QuotaExceeded` for instances or memory beyond the account's quotas."""
    before = (0, 0) if old is None else (old.size, old.size * old.memory_mb)
    for of, more, words in (
        (WANTED_INSTANCES, new.size - before[0], "instances in all its pools"),
        (WANTED_MEMORY, new.size * new.memory_mb - before[1], "MiB of memory of instances"),
    ):
        if more > 0:
            of.check_and_emit(tx, new.account_id, more, new.updated_at, words)
