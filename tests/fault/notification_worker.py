"""A worker to be killed: ``python -m tests.fault.notification_worker URL ORIGIN WRITE``.

It delivers notifications to an origin. Before a write of that name it says so, and waits for death;
without a name it only works.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Concatenate, Final

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Connection, Database, P, T
from cloudcore.db.opening import open_database
from cloudcore.events import NO_EVENTS
from cloudcore.jobs import queue
from cloudcore.jobs.worker import JobPace, JobWorker
from cloudcore.keyring import Keyring
from cloudcore.notifications import publishing
from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from cloudcore.queue.needs import Queues

PACE = JobPace(lease_seconds=0.5, poll_seconds=0.02)
KEYRING = Keyring(bytes(32))


LEASE: Final = "lease"
INSERT: Final = "insert"
END: Final = "end of outbox.deliver"
RECORD: Final = "end of notifications.deliver"
WRITES: Final = (LEASE, INSERT, END, RECORD)
"""Take the event, insert its deliveries, end it; record what the attempt came to."""


def name_of(change: Callable[..., object]) -> str:
    """Return what a change is called here; empty if it has no name."""
    if isinstance(change, partial) and change.func.__name__ == "_commit":
        return f"end of {change.args[0].kind}"
    names: dict[object, str] = {queue.lease: LEASE, publishing._insert_page: INSERT}
    return names.get(change, "")


class DyingDatabase:
    """A database before one of whose writes the process waits to be killed."""

    def __init__(self, database: Database, write: str) -> None:
        self._database = database
        self._last = write
        self._is_dying = False
        self.read = database.read
        self.listen = database.listen
        self.version = database.version
        self.close = database.close

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write, or wait for death."""
        await self._wait(change)
        return await self._database.write(change, *args, **kwargs)

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write, or wait for death."""
        await self._wait(change)
        return await self._database.write_relaxed(change, *args, **kwargs)

    async def _wait(self, change: Callable[..., object]) -> None:
        if self._last and name_of(change) == self._last and not self._is_dying:
            self._is_dying = True
            sys.stdout.write("waiting\n")
            sys.stdout.flush()
        if self._is_dying:
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
        queues=Queues("local", system_clock),
        events=NO_EVENTS,
    )
    return JobWorker(database, NOTIFICATIONS.runtime.job_kinds(needs), pace=PACE)


async def main(url: str, origin: str, write: str) -> None:
    """Work until killed."""
    database = DyingDatabase(open_database(url), write)
    await worker(database, origin).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
