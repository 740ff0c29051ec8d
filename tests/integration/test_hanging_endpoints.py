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

HANGING = 60
ANSWERING = 40
SLOTS = 16
MOST_SLOW = 4
SLOW_SECONDS = 0.3


@dataclass
class Endpoints:
    """Webhooks at addresses of their own; those below `/hangs` never answer."""

    port: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    """Requests by host."""
    never: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked[head.partition("Host: ")[2].partition(":")[0]] += 1
        if head.startswith("POST /hangs "):
            await self.never.wait()
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    def urls(self) -> list[str]:
        """Return the URLs of all; those that hang are first."""
        return [
            f"http://127.0.1.{number}:{self.port}/{'hangs' if number < HANGING else ''}"
            for number in range(HANGING + ANSWERING)
        ]

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
    server = await asyncio.start_server(endpoints.answer, "0.0.0.0", 0)
    endpoints.port = server.sockets[0].getsockname()[1]
    await notified.topic("burst", delivery_policy={"timeout_seconds": 30})
    account_id = notified.acme.account_id
    topic = await served.database.read(ROWS.find_named, account_id, "local", "burst")
    assert topic is not None
    await served.database.write(add_webhooks, topic, endpoints.urls(), served.notifications.keyring)

    async def tell(times: int) -> None:
        await served.database.write(publish, topic, "hello", None, {}, served.clock())

        async def all_got_it() -> bool:
            return endpoints.have_all_got(times)

        await until(all_got_it)

    async with server:
        # An attempt may take 30 seconds, so without giving up this would take minutes.
        began = time.monotonic()
        async with asyncio.timeout(29), _delivering(notified):
            await tell(1)
            await tell(2)
            seconds = time.monotonic() - began
            # Who hangs is asked for two messages and, with each time, half as often.
            times = 1 + int(log2(1 + seconds / (REMEMBERED_TURNS * SLOW_SECONDS)))
            assert endpoints.most_asked_that_hangs() <= 2 * times
        endpoints.never.set()
