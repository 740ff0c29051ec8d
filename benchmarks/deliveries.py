"""Deliveries to webhooks a second, with one of the endpoints hanging: ``-m benchmarks.deliveries``.

One worker, as in a process of ``entrepot serve``, over a database file; the endpoints are another
process. Each message goes to every endpoint. The hanging one takes connections and never answers.
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
from pathlib import Path
from typing import Any

from sqlalchemy import bindparam, column, table

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.jobs.worker import JobPace, JobWorker
from cloudcore.keyring import Keyring
from cloudcore.notifications import subscription_rows, topics
from cloudcore.notifications.delivery_rows import count_deliveries
from cloudcore.notifications.family import NOTIFICATIONS, NotificationNeeds
from cloudcore.notifications.ports import NoQueues
from cloudcore.notifications.records import Subscription, Topic
from cloudcore.notifications.signing import new_secret, seal_secret
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from registry.main import OUTBOUND_SLOTS
from registry.metadata.database import migrate

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


async def serve() -> None:
    """Answer each request but those to ``/0``, and print the port first."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST /0 "):
            await asyncio.Event().wait()
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@asynccontextmanager
async def endpoints() -> AsyncIterator[str]:
    """Run the endpoints; yield their origin."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.deliveries", "--serve"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.wait()


def furnish(tx: Connection, origin: str, count: int) -> tuple[Topic, list[str]]:
    """Add a topic with so many webhooks."""
    now, account = system_clock(), uuid7()
    tx.execute(
        _ADD, id=account, handle="a", status="active", auto_create_repositories=True, created_at=0
    )
    topic = Topic(uuid7(), account, "local", "t", "", {}, {}, now, now)
    topics.create_topic(tx, topic)
    ids = [uuid7() for _ in range(count)]
    for number, each in enumerate(ids):
        nothing: dict[str, Any] = dict.fromkeys(Subscription._fields)
        fields: dict[str, Any] = {
            "id": each,
            "topic_id": topic.id,
            "account_id": account,
            "protocol": "http",
            "endpoint": f"{origin}/{number}",
            "status": "confirmed",
            "filter_policy": {},
            "raw_message_delivery": False,
            "delivery_policy": {},
            "signing_secret": seal_secret(KEYRING, each, new_secret()),
            "active_since": now,
            "faults": [],
            "created_at": now,
            "updated_at": now,
        }
        subscription_rows.add_subscription(tx, Subscription(**{**nothing, **fields}))
    return topic, ids


async def measure(database: Database, origin: str, count: int, messages: int) -> None:
    """Publish, deliver, and print how long it took for all endpoints that answer."""
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
    topic, ids = await database.write(furnish, origin, count)
    kinds = NOTIFICATIONS.job_kinds(needs)
    workers = [
        JobWorker(
            database,
            [kind for kind in kinds if kind.waits_for_others == waits],
            pace=JobPace(slots=OUTBOUND_SLOTS if waits else 4),
        )
        for waits in (False, True)
    ]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    began = time.perf_counter()
    for _ in range(messages):
        publish = partial(
            topics.publish,
            topic=topic,
            message="x" * 500,
            subject=None,
            attributes={},
            now=system_clock(),
        )
        await database.write(publish)

    def left(tx: Connection) -> int:
        return sum(count_deliveries(tx, topic.account_id, each) for each in ids[1:])

    fanned_out = False
    while not fanned_out or await database.read(left) > 0:
        await asyncio.sleep(0.05)
        waiting = await database.read(count_deliveries, topic.account_id, ids[0])
        fanned_out = fanned_out or waiting == messages
    seconds = time.perf_counter() - began
    done = messages * (count - 1)
    sys.stdout.write(f"{done} deliveries in {seconds:.1f} s: {done / seconds:.0f} a second\n")
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def main(options: argparse.Namespace) -> None:
    """Measure, or be the endpoints."""
    if options.serve:
        await serve()
        return
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'metadata.db'}"
        migrate(url)
        database = open_database(url)
        async with endpoints() as origin:
            await measure(database, origin, options.endpoints, options.messages)
        await database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asyncio.run(main(parser.parse_args()))
