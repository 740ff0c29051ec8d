"""Deliveries to webhooks a second while some endpoints hang: ``python -m benchmarks.deliveries``.

The workers of one process of ``entrepot serve``, over a database file; the endpoints are another
process, each at an address of its own. Each message goes to every endpoint. Those that hang take
connections and never answer; told is when all others have all messages.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_network
from pathlib import Path

import uvloop
from sqlalchemy import bindparam, column, func, select, table

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.events import NO_EVENTS
from cloudcore.jobs.worker import JobPace, JobWorker, divide_by_slots
from cloudcore.keyring import Keyring
from cloudcore.notifications import publishing, topics
from cloudcore.notifications.delivery_rows import backlog, publications
from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.notifications.topic import Topic
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from cloudcore.queue.needs import Queues
from registry.metadata.database import migrate
from tests.topics import add_webhooks, new_topic

KEYRING = Keyring(bytes(32))
_accounts = table(
    "accounts",
    *(
        column(name)
        for name in ("id", "handle", "status", "auto_create_repositories", "created_at")
    ),
)
_ADD = Statement(
    _accounts.insert().values({each.name: bindparam(each.name) for each in _accounts.c})
)
_ENDED = Statement(select(func.count(publications.c.ended_at)).select_from(publications))
"""Counts the messages whose deliveries are all inserted."""


async def serve() -> None:
    """Answer each request but those to ``/hangs``, and print the port first."""
    never = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST /hangs "):
            await never.wait()
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@asynccontextmanager
async def endpoints() -> AsyncIterator[int]:
    """Run the endpoints; yield their port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.deliveries", "--serve"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


def furnish(tx: Connection, port: int, count: int, hanging: int) -> tuple[Topic, list[str]]:
    """Add a topic with so many webhooks, of which the first `hanging` hang."""
    now, account = system_clock(), uuid7()
    tx.execute(
        _ADD, id=account, handle="a", status="active", auto_create_repositories=True, created_at=0
    )
    topic = topics.TOPICS.create(tx, new_topic(account, "t", now))
    endpoints = [
        f"http://127.0.1.{number}:{port}/{'hangs' if number < hanging else ''}"
        for number in range(count)
    ]
    return topic, add_webhooks(tx, topic, endpoints, KEYRING)


async def measure(database: Database, port: int, count: int, hanging: int, messages: int) -> None:
    """Publish, deliver, and print how long it took for all endpoints that answer."""
    needs = NotificationNeeds(
        database=database,
        clock=system_clock,
        new_id=uuid7,
        keyring=KEYRING,
        region="local",
        url="http://registry.test",
        client=HttpClient(
            Allowed("ALLOWED", networks=[ip_network("127.0.0.0/8")], takes_plain_http=True),
            max_idle=0,
        ),
        queues=Queues("local", system_clock),
        events=NO_EVENTS,
    )
    topic, ids = await database.write(furnish, port, count, hanging)
    kinds = NOTIFICATIONS.runtime.job_kinds(needs)
    workers = [
        JobWorker(database, chosen, pace=pace)
        for chosen, pace in divide_by_slots(kinds, JobPace(slots=4))
    ]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    began = time.perf_counter()
    for _ in range(messages):
        publish = partial(
            publishing.publish,
            topic=topic,
            message="x" * 500,
            subject=None,
            attributes={},
            now=system_clock(),
        )
        await database.write(publish)

    def left(tx: Connection) -> int:
        found = (backlog(tx, topic.account_id, each, messages) for each in ids[hanging:])
        return sum(count for count, _ in found)

    def published(tx: Connection) -> int:
        row = tx.row(_ENDED)
        return row[0] if row else 0

    while (  # noqa: ASYNC110 - the workers set no event
        await database.read(published) < messages or await database.read(left) > 0
    ):
        await asyncio.sleep(0.05)
    seconds = time.perf_counter() - began
    done = messages * (count - hanging)
    sys.stdout.write(
        f"{hanging:3} of {count} hang: {done} deliveries in {seconds:.1f} s:"
        f" {done / seconds:.0f} a second\n"
    )
    sys.stdout.flush()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def main(options: argparse.Namespace) -> None:
    """Measure, or be the endpoints."""
    if options.serve:
        await serve()
        return
    for hanging in options.hanging:
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'metadata.db'}"
            migrate(url)
            database = open_database(url)
            async with endpoints() as port:
                await measure(database, port, options.endpoints, hanging, options.messages)
            await database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--hanging", type=int, nargs="*", default=[0, 1, 64])
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    uvloop.run(main(parser.parse_args()))
