"""One slow endpoint holds up no other, also if many hang that are due first."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from math import log2

from cloudcore.clock import system_clock
from cloudcore.jobs.kinds import JobKind
from cloudcore.jobs.worker import JobPace, JobWorker
from cloudcore.notifications.delivering import REMEMBERED_TURNS, Deliverer, EndpointTurns
from cloudcore.notifications.delivery_rows import DELIVER
from cloudcore.notifications.publishing import publish
from cloudcore.notifications.topics import ROWS
from tests.integration.notifications_world import World
from tests.jobs import until
from tests.topics import add_webhooks
from tests.webhook_receiver import OK, Answer, Received, webhook_receiver

HANGING = 60
ANSWERING = 40
SLOTS = 16
MOST_SLOW = 4
SLOW_SECONDS = 0.3


@dataclass
class Endpoints:
    """Webhooks at addresses of their own; those below `/hangs` never answer."""

    asked: Counter[str] = field(default_factory=Counter)
    """Requests by host."""

    def answer(self, got: Received) -> Answer:
        """Count a request; return what it gets."""
        self.asked[got.headers["host"].partition(":")[0]] += 1
        return asyncio.Event() if got.path == "/hangs" else OK

    def have_all_got(self, times: int) -> bool:
        """Return True if all that answer were asked so many times."""
        answering = range(HANGING, HANGING + ANSWERING)
        return all(self.asked[f"127.0.1.{number}"] >= times for number in answering)

    def most_asked_that_hangs(self) -> int:
        """Return how often one that hangs was asked."""
        return max(self.asked[f"127.0.1.{number}"] for number in range(HANGING))


@asynccontextmanager
async def _delivering(world: World) -> AsyncIterator[None]:
    """Run the jobs of notifications, with little room for slow turns; drop them at the end."""
    needs = world.served.notifications
    needs.client.allowed = needs.client.allowed._replace(networks=[ip_network("127.0.0.0/8")])
    deliverer = Deliverer(
        needs=replace(needs, clock=system_clock, mail=None),
        turns=EndpointTurns(slow_seconds=SLOW_SECONDS, most_slow=MOST_SLOW),
    )
    others = [kind for kind in world.kinds() if kind.name != DELIVER]
    kinds = [JobKind(name=DELIVER, step=deliverer.step, slots=SLOTS)]
    tasks = [
        asyncio.create_task(
            JobWorker(needs.database, each, pace=JobPace(slots=SLOTS, poll_seconds=0.01)).run()
        )
        for each in (kinds, others)
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_endpoints_that_answer_wait_for_no_timeout_of_those_that_hang(
    notified: World,
) -> None:
    served, endpoints = notified.served, Endpoints()
    await notified.topic("burst", delivery_policy={"timeout_seconds": 30})
    account_id = notified.acme.account_id
    topic = await served.database.read(ROWS.find_named, account_id, "local", "burst")
    assert topic is not None

    async def tell(times: int) -> None:
        await served.database.write(publish, topic, "hello", None, {}, served.clock())

        async def all_got_it() -> bool:
            return endpoints.have_all_got(times)

        await until(all_got_it)

    async with webhook_receiver("0.0.0.0") as receiver:
        receiver.answer = endpoints.answer
        port = int(receiver.url.rpartition(":")[2])
        urls = [
            f"http://127.0.1.{number}:{port}/{'hangs' if number < HANGING else ''}"
            for number in range(HANGING + ANSWERING)
        ]
        await served.database.write(add_webhooks, topic, urls, served.notifications.keyring)
        # An attempt may take 30 seconds, so without giving up this would take minutes.
        began = time.monotonic()
        async with asyncio.timeout(29), _delivering(notified):
            await tell(1)
            await tell(2)
            seconds = time.monotonic() - began
            # Who hangs is asked for two messages and, with each time, half as often.
            times = 1 + int(log2(1 + seconds / (REMEMBERED_TURNS * SLOW_SECONDS)))
            assert endpoints.most_asked_that_hangs() <= 2 * times
