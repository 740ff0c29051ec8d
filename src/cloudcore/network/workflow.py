"""Apply the plans of VPCs on their machines, and remove deleted VPCs.

The workflow of a VPC has one step: apply the whole plan, whatever has changed. After a restart of
the machine, all its VPCs are applied again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.network import rows
from cloudcore.network.driver import RulesRefused, VpcPlan
from cloudcore.network.planning import plan_of, unchanged
from cloudcore.network.resources import PartOfVpc, Vpc
from cloudcore.nodes.rows import Placing
from cloudcore.resources.resource import DELETING
from cloudcore.resources.rows import Rows
from cloudcore.resources.workflow import Goal, Problem, Step, StepAttempt, StepDone, StepRetry, Work

if TYPE_CHECKING:
    from cloudcore.network.needs import NetworkNeeds

P = TypeVar("P", bound=PartOfVpc)
RULES_REFUSED: Final = "RULES_REFUSED"
RECONCILE_SECONDS: Final = 30

_log = logging.getLogger(__name__)


def goal(vpc: Vpc, _now: int) -> Goal | None:
    """Return the goal of a VPC's next step, or None if there is nothing to do."""
    if vpc.status == DELETING:
        return Goal("remove")
    if vpc.status != "active" or vpc.applied != vpc.generation:
        return Goal("apply", vpc.generation)
    return None


async def _apply(
    found: Vpc, needs: NetworkNeeds, _attempt: StepAttempt
) -> StepDone[Vpc] | StepRetry[Vpc]:
    try:
        generation = await _apply_newest(needs, found.account_id, found.id)
    except RulesRefused as error:
        _log.error("the rules of the VPC %s are refused: %s", found.id, error)
        words = "its machine does not take the rules of the VPC; those before are in force"
        return StepRetry(
            change=lambda current, _now: structs.replace(current, status="degraded"),
            faults=[Problem(RULES_REFUSED, words)],
        )

    def applied(current: Vpc, _now: int) -> Vpc:
        return structs.replace(current, status="active", applied=generation)

    return StepDone(change=applied)


async def _remove(
    found: Vpc, needs: NetworkNeeds, _attempt: StepAttempt
) -> StepDone[Vpc] | StepRetry[Vpc]:
    await needs.driver.remove(found.id)
    return StepDone()


async def _apply_newest(needs: NetworkNeeds, account_id: str, vpc_id: str) -> int:
    """Apply the plan of a VPC; return the generation that was applied, or 0 if the VPC is gone.

    Another process may have applied a newer plan meanwhile. So the plan is read again until it is
    unchanged.
    """
    done = 0
    while True:
        plan, generation = await needs.database.read(_read, account_id, vpc_id)
        if plan is None or generation == done:
            return done
        await needs.driver.apply(plan)
        done = generation


def _read(tx: Connection, account_id: str, vpc_id: str) -> tuple[VpcPlan | None, int]:
    found = rows.VPCS.find(tx, account_id, vpc_id)
    if found is None or found.status == DELETING:
        return None, 0
    return unchanged(tx, account_id, vpc_id, plan_of) or (None, 0)


VPC_WORK: Final[Work[Vpc, NetworkNeeds]] = Work(
    rows.VPCS,
    goal=goal,
    steps={"apply": Step(_apply, 1, 60), "remove": Step(_remove, 1, 60)},
    node_of=lambda found: found.node,
)
PLACING: Final = Placing(rows.VPCS, VPC_WORK.wake)
"""VPCs, as a kind of resource that is placed on machines."""


class NetworkReconciler:
    """Applies the rows to this machine's kernel: all VPCs once, later only missing ones."""

    def __init__(self, needs: NetworkNeeds) -> None:
        self._needs: Final = needs
        self._is_all_done = False

    async def turn(self) -> None:
        """Apply the VPCs of this machine that have rows, and remove those that have none.

        Only VPCs of this install are ever removed.
        """
        driver = self._needs.driver
        known = await driver.known()  # first: a VPC that is made meanwhile is not in it
        placed = await self._needs.database.read(rows.VPCS_ON.all, self._needs.node.name)
        for gone in sorted({*known} - {each.id for each in placed}):
            _log.warning("taking down the VPC %s, which no row has", gone)
            await driver.remove(gone)
        for each in placed:
            if self._is_all_done and driver.has(each.id):
                continue
            try:
                await _apply_newest(self._needs, each.account_id, each.id)
            except RulesRefused as error:
                _log.error("the rules of the VPC %s are refused: %s", each.id, error)
        self._is_all_done = True


def removal_of(part: Rows[P]) -> Callable[[Connection, P, int], None]:
    """Return the `removal` function for a kind of VPC parts; it wakes the workflow of the VPC."""

    def remove(tx: Connection, found: P, now: int) -> None:
        change_vpc(tx, found.account_id, found.vpc.id, now)  # first: a new part of its name waits
        part.remove(tx, found, now)

    return remove


def change_vpc(tx: Connection, account_id: str, vpc_id: str, now: int) -> None:
    """Count a change of a VPC, and wake the workflow that applies the change once `tx` commits.

    Until `tx` ends, this locks all of the VPC, so the next transaction that locks it sees the
    change. Lock parts of the VPC before.
    """
    found = rows.VPCS.find(tx, account_id, vpc_id)
    if found is not None:
        VPC_WORK.wake(tx, found, now)  # first: steps, too, lock the job before the record
        rows.bump(tx, account_id, vpc_id)
