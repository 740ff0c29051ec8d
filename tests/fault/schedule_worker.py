"""A worker of the schedule, to be killed: ``python -m tests.fault.schedule_worker URL FILE MODE``.

Its one chore comes round twenty times a second. It writes a line when it is there, one for each
turn it takes, and one if another process was at a turn, too: a turn holds FILE as long as its
process lives. In the MODE ``stuck`` it never ends a turn; else it is ``working``.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import sys
from functools import partial

from cloudcore.db.opening import open_database
from cloudcore.jobs.schedule import Scheduled, Scheduler, SchedulerPace
from tests.fault.job_worker import say

CHORE = "test.chore"
LEASE_SECONDS = 4
"""Renewed at a third: a worker of a busy machine that stands still for longer loses a turn."""
PACE = SchedulerPace(lease_seconds=LEASE_SECONDS, look_seconds=0.2, spread_seconds=0.01)


async def take_turn(file: str, *, is_stuck: bool) -> None:
    """Take a while, so that deaths meet every part of a turn."""
    held = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("at once")
    else:
        say("turn")
        await asyncio.sleep(random.uniform(0, 0.03))
        if is_stuck:
            await asyncio.Event().wait()
    finally:
        os.close(held)


async def main(url: str, file: str, mode: str) -> None:
    """Work until killed."""
    database = open_database(url)
    say("ready")
    chore = Scheduled(CHORE, 0.05, partial(take_turn, file, is_stuck=mode == "stuck"))
    await Scheduler(database, [chore], pace=PACE).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
