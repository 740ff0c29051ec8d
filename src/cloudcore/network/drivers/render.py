"""The driver that only writes the rules of VPCs to files.

It has no requirements, so anybody can see the rules of a VPC. The rules are checked if `nft` is
installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cloudcore.network.driver import InterfacePlan, VpcPlan
from cloudcore.network.drivers.nft_check import can_check, check_rules
from cloudcore.network.drivers.rules import render
from cloudcore.network.drivers.vpc_files import VpcFiles


class Render:
    """Writes the rules of each VPC to ``<folder>/<id>.nft``."""

    def __init__(self, folder: Path) -> None:
        self._files: Final = VpcFiles(folder)

    def check(self) -> None:
        """Do nothing: the driver has no requirements."""

    def refuse(self, plan: VpcPlan) -> None:
        """Check the rules of a plan, if possible here; raise `RulesRefused` if rejected."""
        _check(render(plan))

    async def apply(self, plan: VpcPlan) -> None:
        """Check and write the rules of a VPC."""
        await self._files.run(self._apply, plan)

    async def attach(self, vpc_id: str, interface: InterfacePlan, netns: Path) -> None:
        """Do nothing."""

    async def detach(self, vpc_id: str, interface_id: str) -> None:
        """Do nothing."""

    async def add_vip(self, vpc_id: str, vip: str, interface_id: str | None = None) -> None:
        """Store a VIP, which is in the rules from the next plan on."""
        await self._files.run(self._files.keep_vip, vpc_id, ip_address(vip), interface_id)

    async def remove_vip(self, vpc_id: str, vip: str) -> None:
        """Remove a VIP from the stored ones."""
        await self._files.run(self._files.forget_vip, vpc_id, ip_address(vip))

    def namespace_of(self, vpc_id: str) -> Path | None:  # noqa: ARG002 - of the protocol
        """Return None: VPCs are in the machine's own namespace."""
        return None

    def has(self, vpc_id: str) -> bool:
        """Return True if the rules of a VPC have been written."""
        return self._files.rules(vpc_id).exists()

    async def remove(self, vpc_id: str) -> None:
        """Delete the files of a VPC."""
        await self._files.run(self._files.forget, vpc_id)

    async def known(self) -> Sequence[str]:
        """Return the ids of the VPCs that have files."""
        return self._files.ids()

    def _apply(self, plan: VpcPlan) -> None:
        kept = self._files.kept(plan.id)
        rules = render(plan, kept.addresses)
        _check(rules)
        self._files.keep(plan.id, kept)
        self._files.keep_rules(plan.id, rules)


def _check(rules: str) -> None:
    if can_check():
        check_rules(rules)
