"""Dependencies of networks, and changes that are made only if the driver accepts the rules.

The check of the rules runs a program and takes time, so it is not part of a transaction: on SQLite,
that would block all writes. A change whose rules were not checked is rolled back. Then its rules
are checked, and the change is made again; that succeeds unless something else in the VPC has
changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Network
from typing import Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unavailable
from cloudcore.network import rows
from cloudcore.network.driver import NetworkDriver, VpcPlan
from cloudcore.network.planning import plan_of
from cloudcore.network.resources import PartOfVpc
from cloudcore.nodes.node import NODE, Node
from cloudcore.ports import Opening, Port
from cloudcore.threads import FairThread

T = TypeVar("T")
_MOST_CHECKS: Final = 5
_CHECKS: Final = FairThread("rules of networks", niceness=10)
"""The thread that runs checks of rules; accounts take turns."""


class Checked(NamedTuple):
    """A state of a VPC whose rules the driver has accepted; `generation` counts its changes."""

    vpc_id: str
    generation: int


class _Unchecked(Exception):
    """The rules after a change were not checked yet, so the change is rolled back."""

    def __init__(self, account_id: str, of: Checked, plan: VpcPlan) -> None:
        super().__init__("the rules are looked at first")
        self.account_id = account_id
        self.of = of
        self.plan = plan


def check_rules(tx: Connection, account_id: str, vpc_id: str, needs: NetworkNeeds) -> None:
    """Roll back a change, unless the driver has accepted the new rules of its VPC.

    Call this at the end of a change that is made by `with_checked_rules`.
    """
    found = rows.VPCS.find(tx, account_id, vpc_id)
    if found is None or found.checked == found.generation:
        return
    of = Checked(vpc_id, found.generation)
    if needs.checked != of:
        plan = plan_of(tx, account_id, vpc_id)
        assert plan is not None
        raise _Unchecked(account_id, of, plan)
    rows.note_checked(tx, account_id, vpc_id)


def check_rules_of_part(
    tx: Connection, found: PartOfVpc, _made: object, needs: NetworkNeeds
) -> None:
    """Call `check_rules` for the VPC of a changed part; this is passed to `Methods` as `after`."""
    check_rules(tx, found.account_id, found.vpc.id, needs)


async def with_checked_rules(
    change: Callable[[NetworkNeeds], Awaitable[T]], needs: NetworkNeeds
) -> T:
    """Make a change that ends with `check_rules`; return its result.

    `change` must use the needs passed to it. Raise `RulesRefused` if the driver rejects the rules;
    nothing is changed. Raise `Unavailable` if other changes of the VPC keep interfering.
    """
    try:
        return await change(needs)
    except _Unchecked as first:
        unchecked = first
    async with needs.changing.setdefault(unchecked.of.vpc_id, asyncio.Lock()):
        for _ in range(_MOST_CHECKS):
            await _CHECKS.run(unchecked.account_id, needs.driver.refuse, unchecked.plan)
            try:
                return await change(replace(needs, checked=unchecked.of))
            except _Unchecked as again:
                unchecked = again
    raise Unavailable("others change the VPC at the same time; try it again", retry_after=1)


DRIVER: Final[Port[NetworkDriver]] = Port("network.driver")
"""The driver of networks on this machine."""
IPV6_RANGES: Final[Port[Sequence[IPv6Network]]] = Port("network.ipv6_ranges")
"""Global networks of the operator that VPCs may have prefixes of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkNeeds:
    """The dependencies of the routes, the jobs and the watches of networks."""

    database: Database
    clock: Clock
    node: Node
    driver: NetworkDriver
    ipv6_ranges: Sequence[IPv6Network] = ()
    changing: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """Locks by the id of a VPC: one change at a time is checked, so that each succeeds in turn."""
    checked: Checked | None = None
    """The rules that the driver has accepted, while their change is made again."""


async def open_needs(opening: Opening) -> NetworkNeeds:
    """Return what the network family needs in this process."""
    return NetworkNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        node=await opening.get(NODE),
        driver=await opening.get(DRIVER),
        ipv6_ranges=await opening.get(IPV6_RANGES),
    )
