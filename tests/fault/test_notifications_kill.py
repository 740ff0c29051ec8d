"""Workers killed at each step of a delivery: no message is delivered zero times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cloudcore.clock import system_clock
from cloudcore.db.base import Connection, Database
from cloudcore.notifications import publishing, topics
from cloudcore.notifications.topic import Topic
from tests.databases import on_both_databases
from tests.fault.certificate_worker import KEYRING
from tests.fault.notification_worker import RECORD, WRITES, worker
from tests.jobs import running, until
from tests.kms_world import ACME, add_account
from tests.loaded import start_worker
from tests.topics import add_webhooks, new_topic
from tests.webhook_receiver import OK, Receiver, webhook_receiver


def furnish(tx: Connection, hook: str) -> Topic:
    """Add an account with a topic, and a confirmed webhook."""
    now = system_clock()
    add_account(tx, ACME)
    topic = topics.TOPICS.create(tx, new_topic(ACME, "t", now))
    add_webhooks(tx, topic, [hook], KEYRING)
    return topic


@asynccontextmanager
async def worker_to_be_killed(
    url: str, hook: Receiver, write: str
) -> AsyncIterator[asyncio.Task[str]]:
    """Start a worker; yield what ends when it waits to be killed. It is killed at the end."""
    words = ("tests.fault.notification_worker", url, hook.url, write)
    killed = await asyncio.to_thread(start_worker, *words)
    said = asyncio.create_task(asyncio.to_thread(killed.stdout.readline))
    try:
        yield said
    finally:
        killed.process.kill()
        await said
        killed.kill()


@on_both_databases
@pytest.mark.timeout(180)
async def test_a_worker_killed_at_any_step_delivers_nothing_zero_times(
    database: Database, metadata_url: str
) -> None:
    async with webhook_receiver() as hook:
        topic = await database.write(furnish, f"{hook.url}/hook")

        async def publish() -> str:
            return await database.write(publishing.publish, topic, "x", None, {}, system_clock())

        def times(message_id: str) -> int:
            return sum(each.headers["webhook-id"] == message_id for each in hook.got)

        async def all_have_come() -> bool:
            return all(map(times, published))

        published = []
        for write in WRITES:
            published.append(await publish())
            before = len(hook.got)
            async with worker_to_be_killed(metadata_url, hook, write) as waits:
                assert await waits == "waiting\n"
            # Between the POST and its record, the endpoint has the message already: it comes
            # again, under the same id. (More than once, if the worker stood still for a lease.)
            had = times(published[-1])
            # It may be one published before, if that was not recorded yet.
            assert write != RECORD or len(hook.got) > before

            async def comes_again(message_id: str = published[-1], had: int = had) -> bool:
                return times(message_id) > had

            async with running(worker(database, hook.url)):
                await until(comes_again)

        # In the middle of the POST: the endpoint has not answered yet.
        asked, never = asyncio.Event(), asyncio.Event()

        def hang(_got: object) -> asyncio.Event:
            asked.set()
            return never

        hook.answer = hang
        published.append(await publish())
        async with worker_to_be_killed(metadata_url, hook, ""):
            await asked.wait()
        hook.got.clear()
        published = published[-1:]
        hook.answer = lambda _got: OK
        never.set()
        async with running(worker(database, hook.url)):
            await until(all_have_come)
