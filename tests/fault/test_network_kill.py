"""A process that dies while it works on a network leaves nothing that the next cannot finish."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from cloudcore.network.driver import GroupPlan, VpcPlan
from cloudcore.network.drivers.nftables import Nftables
from tests.loaded import program_environment, run_loaded
from tests.network_lab import INTERNET_ADDRESS, Lab, open_lab, tcp
from tests.network_plans import EVERYTHING, interface, new_id, subnet, vpc, with_gateways

DEATHS = 8
"""Places at which each act is cut off, from its first call to its last."""


def _run(lab: Lab, plan: VpcPlan, act: str, host: Path, last: int) -> int:
    """Return how many calls a process made that was not to die before."""
    kept = lab.folder.with_suffix(".plan")
    kept.write_bytes(pickle.dumps(plan))
    words = [str(each) for each in (lab.folder, kept, act, host, last)]
    ran = run_loaded("tests.fault.network_worker", words, program_environment())
    assert ran.returncode == (9 if last else 0), ran.stderr
    return int(ran.stdout or 0)


@pytest.mark.timeout(300)
async def test_what_dies_while_it_makes_or_removes_a_network_is_finished_by_the_next(
    tmp_path: Path,
) -> None:
    async with open_lab(tmp_path / "network") as lab:
        group = GroupPlan(new_id(), EVERYTHING)
        where = subnet("10.0.0.0/24", "2001:db8:1::/64", "egress_only_gateway")
        instance = interface(where, 4, group)
        plan = with_gateways(replace(vpc(where, groups=(group,)), interfaces=(instance,)))
        lab.router(plan)
        clean = lab.census()
        made = _run(lab, plan, "make", lab.host(), 0)
        removed = _run(lab, plan, "remove", lab.host(), 0)
        assert lab.census() == clean
        assert made > removed > DEATHS
        for number in range(DEATHS):
            host = lab.host()
            _run(lab, plan, "make", host, 1 + made * number // DEATHS)
            next_one = Nftables(lab.folder)
            await next_one.apply(plan)
            await next_one.attach(plan.id, instance, host)
            await next_one.add_vip(plan.id, "203.0.113.7")
            assert tcp(host, lab.internet, INTERNET_ADDRESS) == "answers"
            assert tcp(lab.internet, lab.router(plan), "203.0.113.7") == "answers"
            _run(lab, plan, "remove", host, 1 + removed * number // DEATHS)
            for each in await next_one.known():
                await next_one.remove(each)
            lab.forget_hosts()
            assert lab.census() == clean
            assert not [each.name for each in lab.folder.iterdir() if each.suffix]
