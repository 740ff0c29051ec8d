"""A process that works on a network and dies at a call of its code; it prints how many it made."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from cloudcore.network.driver import VpcPlan
from cloudcore.network.drivers.nftables import Nftables


def main(folder: str, plan_file: str, act: str, host: str, last: str) -> None:
    """Bring a VPC and its first interface about, or take it down; die at the call `last`."""
    plan: VpcPlan = pickle.loads(Path(plan_file).read_bytes())
    calls = count(1)
    made = 0

    def look(frame: FrameType, event: str, _argument: Any) -> None:  # noqa: ANN401
        nonlocal made
        if event == "call" and "/cloudcore/network/" in frame.f_code.co_filename:
            made = next(calls)
            if made == int(last):
                os._exit(9)

    async def work() -> None:
        driver = Nftables(Path(folder))
        if act == "make":
            await driver.apply(plan)
            await driver.attach(plan.id, plan.interfaces[0], Path(host))
            await driver.add_vip(plan.id, "203.0.113.7")
        else:
            await driver.remove(plan.id)

    threading.setprofile(look)
    asyncio.run(work())
    sys.stdout.write(f"{made}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
