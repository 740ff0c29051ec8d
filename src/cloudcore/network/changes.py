"""Change what belongs to a VPC, once a driver takes the rules that the change would give it.

That takes a program its time, so it is no part of a transaction, in which on SQLite nobody else
writes. A change that was made with rules that nobody looked at undoes itself. They are looked at
then, and it is made again, which holds if nothing else of the VPC was changed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from cloudcore.network import rows
from cloudcore.network.plan import VpcPlan
from cloudcore.network.planning import plan_of
from cloudcore.threads import FairThread

if TYPE_CHECKING:
    from cloudcore.network.needs import NetworkNeeds

T = TypeVar("T")
_MOST_LOOKS: Final = 5
LOOKS: Final = FairThread("rules of networks", niceness=10)
"""Waits for the program that looks at rules: for one of each other account at most."""


class Checked(NamedTuple):
    """Rules that a driver takes: those of a VPC at a count of its changes."""

    vpc_id: str
    generation: int


class _Unchecked(Exception):
    """Nobody has looked at the rules of a change, which is undone."""

    def __init__(self, account_id: str, of: Checked, plan: VpcPlan) -> None:
        super().__init__("the rules are looked at first")
        self.account_id = account_id
        self.of = of
        self.plan = plan


def check_rules(tx: Connection, account_id: str, vpc_id: str, needs: NetworkNeeds) -> None:
    """Undo a change unless the rules of its VPC are known to be good (`with_checked_rules`)."""
    found = rows.VPCS.find(tx, account_id, vpc_id)
    if found is None or found.checked == found.generation:
        return
    of = Checked(vpc_id, found.generation)
    if needs.checked != of:
        plan = plan_of(tx, account_id, vpc_id)
        assert plan is not None
        raise _Unchecked(account_id, of, plan)
    rows.note_checked(tx, account_id, vpc_id)


class RuleChecks:
    """Looks at the rules of changes: of a VPC one after the other, so that each is made."""

    def __init__(self) -> None:
        self._of_vpc: Final[WeakValueDictionary[str, asyncio.Lock]] = WeakValueDictionary()

    async def change(
        self,
        change: Callable[[NetworkNeeds], Awaitable[T]],
        needs: NetworkNeeds,
        unchecked: _Unchecked,
    ) -> T:
        """Look at the rules of a change, and make it.

        Raises:
            RulesRefused: the driver does not take them.
            Unavailable: others change the VPC all the time.

        """
        vpc_id = unchecked.of.vpc_id
        async with self._of_vpc.setdefault(vpc_id, asyncio.Lock()):
            for _ in range(_MOST_LOOKS):
                await LOOKS.run(unchecked.account_id, needs.driver.refuse, unchecked.plan)
                try:
                    return await change(replace(needs, checked=unchecked.of))
                except _Unchecked as again:
                    unchecked = again
        words = "others change the VPC at the same time; try it again"
        raise Unavailable(words, retry_after=1)


async def with_checked_rules(
    change: Callable[[NetworkNeeds], Awaitable[T]], needs: NetworkNeeds
) -> T:
    """Make a change that ends with `check_rules`, which gets the needs that this gives it.

    Raises:
        RulesRefused: the driver does not take the rules; nothing is changed.
        Unavailable: others change the VPC all the time.

    """
    try:
        return await change(needs)
    except _Unchecked as unchecked:
        first = unchecked
    return await needs.rule_checks.change(change, needs, first)
