"""A consumer to be killed: ``python -m tests.fault.queue_consumer URL QUEUE-ID``.

It leases messages for a second and acknowledges them. It writes a line when it is there, one for
each message it has leased, and one for each that it has acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import sys

from cloudcore.clock import system_clock
from cloudcore.db.opening import open_database
from cloudcore.queue import messages
from cloudcore.queue.messages import lease_id
from cloudcore.queue.queues import ROWS
from tests.kms_world import ACME


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(url: str, queue_id: str) -> None:
    """Consume until killed."""
    database = open_database(url)
    queue = await database.read(ROWS.find, ACME, queue_id)
    assert queue is not None
    say("ready")
    while True:
        leased = await database.write_relaxed(
            messages.lease_messages, ACME, queue_id, 3, 1, system_clock()
        )
        for each in leased or ():
            say(f"leased {each.id}")
        await asyncio.sleep(random.uniform(0, 0.02))  # the work
        for each in leased or ():
            done, _ = await database.write(
                messages.acknowledge, queue, [lease_id(each.id, each.lease_token)], system_clock()
            )
            if done:
                say(f"acknowledged {each.id}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
