"""A worker to be killed: ``python -m tests.fault.notification_worker URL ORIGIN WRITES``.

It delivers notifications to an origin. Before its write of that number it says so, and waits for
death; with 0 it only works.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Concatenate

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Connection, Database, P, T
from cloudcore.db.opening import open_database
from cloudcore.jobs import queue
from cloudcore.jobs.worker import JobPace, JobWorker
from cloudcore.keyring import Keyring
from cloudcore.notifications.family import NOTIFICATIONS, NotificationNeeds
from cloudcore.notifications.ports import NoQueues
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient

PACE = JobPace(lease_seconds=0.3, poll_seconds=0.02)
KEYRING = Keyring(bytes(32))


class DyingDatabase:
    """A database before one of whose writes the process waits to be killed."""

    def __init__(self, database: Database, writes: int) -> None:
        self._database = database
        self._left = writes or sys.maxsize
        self.read = database.read
        self.listen = database.listen
        self.version = database.version
        self.close = database.close

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write, or wait for death."""
        await self._wait()
        return await self._database.write(change, *args, **kwargs)

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write, or wait for death; leases are renewed as often as the machine lets them."""
        if change is not queue.renew:
            await self._wait()
        return await self._database.write_relaxed(change, *args, **kwargs)

    async def _wait(self) -> None:
        self._left -= 1
        if self._left == 0:
            sys.stdout.write("waiting\n")
            sys.stdout.flush()
        if self._left <= 0:
            await asyncio.Event().wait()


def worker(database: Database, origin: str) -> JobWorker:
    """Return a worker that delivers notifications to an origin."""
    needs = NotificationNeeds(
        database=database,
        clock=system_clock,
        new_id=uuid7,
        keyring=KEYRING,
        region="local",
        url="http://registry.test",
        client=HttpClient(Allowed("ALLOWED", origins=[origin], takes_plain_http=True)),
        queues=NoQueues(),
    )
    return JobWorker(database, NOTIFICATIONS.job_kinds(needs), pace=PACE)


async def main(url: str, origin: str, writes: str) -> None:
    """Work until killed."""
    database = DyingDatabase(open_database(url), int(writes))
    await worker(database, origin).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
