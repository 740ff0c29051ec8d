"""What brings the network of VPCs about on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cloudcore.network.plan import InterfacePlan, VpcPlan


class RulesRefused(Exception):
    """The kernel, or the program that checks for it, does not take the rules of a VPC.

    Nothing of them is in force: what was before stays. Its words are for the operator.
    """


class NetworkDriver(Protocol):
    """Brings the network of VPCs about on this machine.

    Each call is idempotent, and may be made by any process of the machine. Ids are UUIDs.
    """

    def check(self) -> None:
        """Return if this machine has all that the driver needs.

        Raises:
            DriverUnusable: it has not; the words say what is missing, and what to do.

        """
        ...

    def refuse(self, plan: VpcPlan) -> None:
        """Return if the rules of a plan would be taken; nothing is changed.

        Raises:
            RulesRefused: they would not.

        """
        ...

    async def apply(self, plan: VpcPlan) -> None:
        """Bring a VPC about: its namespace, links, routes, and its rules in one transaction.

        Flows that the plan still lets through go on.

        Raises:
            RulesRefused: the rules are not taken; those before stay.

        """
        ...

    async def attach(self, vpc_id: str, interface: InterfacePlan, netns: Path) -> None:
        """Put an interface into the network namespace of an instance, as its `eth0`.

        What may pass by it is what was last applied: nothing, before its VPC is applied with it.
        """
        ...

    async def detach(self, vpc_id: str, interface_id: str) -> None:
        """Take an interface away."""
        ...

    async def add_vip(self, vpc_id: str, vip: str, interface_id: str | None = None) -> None:
        """Have a VPC answer at an address of the operator's ranges, where its balancers listen.

        What may begin there is what the groups of this interface of a balancer let begin; TCP, if
        none is given.
        """
        ...

    async def remove_vip(self, vpc_id: str, vip: str) -> None:
        """Have a VPC not answer there any more."""
        ...

    def namespace_of(self, vpc_id: str) -> Path | None:
        """Return the network namespace of a VPC, or None if it is the machine's own."""
        ...

    def has(self, vpc_id: str) -> bool:
        """Return True if a VPC was brought about, and has not vanished since."""
        ...

    async def remove(self, vpc_id: str) -> None:
        """Take away all that there is of a VPC."""
        ...

    async def known(self) -> Sequence[str]:
        """Return the ids of the VPCs of which there is something, of this install alone."""
        ...
