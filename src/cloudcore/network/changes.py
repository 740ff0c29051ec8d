"""What follows from a change of anything that belongs to a VPC."""

from __future__ import annotations

from cloudcore.db.base import Connection
from cloudcore.network import rows
from cloudcore.network.driver import NetworkDriver
from cloudcore.network.planning import plan_of
from cloudcore.network.work import VPC_WORK


def wake_vpc(tx: Connection, account_id: str, vpc_id: str, now: int) -> None:
    """Let the machine of a VPC bring a change about once `tx` is committed.

    Until then nobody else changes anything of the VPC: what is read afterwards stays.
    """
    rows.bump(tx, account_id, vpc_id)
    found = rows.VPCS.find(tx, account_id, vpc_id)
    if found is not None:
        VPC_WORK.wake(tx, found, now)


def check_rules(tx: Connection, account_id: str, vpc_id: str, driver: NetworkDriver) -> None:
    """Let a driver look at the rules of a VPC if they were changed and not looked at.

    Raises:
        RulesRefused: it does not take them.

    """
    found = rows.VPCS.find(tx, account_id, vpc_id)
    if found is None or found.checked == found.generation:
        return
    plan = plan_of(tx, account_id, vpc_id)
    assert plan is not None
    driver.refuse(plan)
    rows.note_checked(tx, account_id, vpc_id)
