"""A worker to be killed: ``python -m tests.fault.notification_worker URL ORIGIN WRITE``.

It delivers notifications to an origin. Before a write of that name it says so, and waits for death;
without a name it only works.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.events import NO_EVENTS
from cloudcore.jobs.worker import JobPace, JobWorker
from cloudcore.notifications import publishing
from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from cloudcore.queue.needs import Queues
from tests.dying import DyingDatabase
from tests.fault.certificate_worker import KEYRING, LEASE, Death, Names

PACE = JobPace(lease_seconds=0.5, poll_seconds=0.02)


INSERT: Final = "insert"
END: Final = "end of outbox.deliver"
RECORD: Final = "end of notifications.deliver"
WRITES: Final = (LEASE, INSERT, END, RECORD)
"""Take the event, insert its deliveries, end it; record what the attempt came to."""


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
    names: Names = {publishing._insert_page: INSERT}
    database = DyingDatabase(open_database(url), Death(write, names).come_to_write)
    await worker(database, origin).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
