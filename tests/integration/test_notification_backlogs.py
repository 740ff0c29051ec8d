"""Deliveries that wait: how many there may be, and what is locked when they come and go."""

from __future__ import annotations

from typing import Final

import pytest
from sqlalchemy import func, select

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.db.rows import count
from cloudcore.db.statement import Statement
from cloudcore.notifications import delivering, delivery_rows, publishing, topics
from cloudcore.notifications.delivery_rows import deliveries, publications
from cloudcore.queue.queue import QUEUE_MESSAGES
from cloudcore.quotas.limits import EVERY_ACCOUNT, put_limit, remove_limit
from tests.databases import on_both_databases
from tests.integration.notifications_world import World
from tests.webhook_receiver import status

_DELIVERIES: Final = Statement(select(func.count()).select_from(deliveries))
_PUBLICATIONS: Final = Statement(select(func.count()).select_from(publications))


@on_both_databases
async def test_of_too_many_messages_for_an_endpoint_the_oldest_fail(
    notified: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "MAX_BACKLOG", 3)
    dead = await notified.queue("dead")
    topic = await notified.topic()
    kept = await notified.confirmed(topic, redrive_policy={"dead_letter_queue": dead})
    lost = await notified.confirmed(topic, endpoint=f"{notified.hook.url}/other")
    notified.hook.answer = lambda _got: status(503)
    ids = []
    for _ in range(5):
        ids.append(await notified.publish(topic))
        await notified.deliver()
    assert {each["message_id"] for each, _ in await notified.queued(dead)} == set(ids[:2])
    faults = {each["code"]: each for each in (await notified.show(topic, kept))["faults"]}
    assert faults["BACKLOG_FULL"]["occurrences"] == 2
    assert faults["BACKLOG_FULL"]["severity"] == "error"
    assert "MESSAGE_DROPPED" not in faults
    faults = {each["code"]: each for each in (await notified.show(topic, lost))["faults"]}
    assert faults["MESSAGE_DROPPED"]["occurrences"] == 2
    notified.hook.got.clear()
    notified.hook.answer = lambda _got: status(204)
    await notified.deliver(after=20)
    got = sorted(each.envelope["message_id"] for each in notified.hook.got)
    assert got == sorted(ids[2:] * 2)


async def test_of_too_many_messages_the_oldest_are_lost_if_the_dead_letter_queue_is_full(
    notified: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "MAX_BACKLOG", 1)
    served, dead, topic = notified.served, await notified.queue("dead"), await notified.topic()
    made = await notified.confirmed(topic, redrive_policy={"dead_letter_queue": dead})
    await served.database.write(
        put_limit, served.acme.account_id, QUEUE_MESSAGES.name, 0, served.clock()
    )
    notified.hook.answer = lambda _got: status(503)
    ids = []
    for _ in range(2):
        ids.append(await notified.publish(topic))
        await notified.deliver()
    faults = {each["code"]: each for each in (await notified.show(topic, made))["faults"]}
    lost = faults["MESSAGE_DROPPED"]
    assert lost["message"] == f"message {ids[0]} is lost: its dead-letter queue is full"
    assert {"BACKLOG_FULL", "DEAD_LETTER_QUEUE_FULL"} < faults.keys()
    notified.hook.got.clear()
    notified.hook.answer = lambda _got: status(204)
    await notified.deliver(after=20)
    assert [each.envelope["message_id"] for each in notified.hook.got] == ids[1:]


async def test_nothing_is_published_while_too_much_waits(notified: World) -> None:
    database = notified.served.database
    topic = await notified.topic()
    await notified.confirmed(topic)
    for most, quota in (
        (2, "published_messages"),
        (2, "waiting_deliveries"),
        (10, "waiting_bytes"),
    ):
        notified.hook.answer = lambda _got: status(503)
        await database.write(put_limit, EVERY_ACCOUNT, quota, most, 1)
        path, taken = f"/v1/topics/{topic['id']}/messages", 0
        while (refused := await notified.ask("POST", path, {"message": "Größe"})).is_success:
            taken += 1
            notified.served.clock.now += 1_000_000  # each counts
            if quota != "published_messages":
                await notified.deliver()
        assert 1 <= taken <= 2
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == "QUOTA_EXCEEDED"
        assert refused.json()["error"]["params"]["quota"] == quota
        await database.write(remove_limit, EVERY_ACCOUNT, quota)
        notified.hook.answer = lambda _got: status(204)
        await notified.deliver(after=20)
        await notified.publish(topic)  # there is room again
        await notified.deliver(after=1)


@on_both_databases
async def test_a_topic_is_deleted_once_its_messages_are_dropped_in_portions(
    notified: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = await notified.topic(), await notified.topic("other")
    for each in (topic, other):
        await notified.confirmed(each)
        await notified.confirmed(each, endpoint=f"{notified.hook.url}/other")
    notified.hook.answer = lambda _got: status(503)
    for each in (topic, topic, topic, other):
        await notified.publish(each)
    await notified.deliver()

    def left(tx: Connection) -> tuple[int, int]:
        return count(tx, _DELIVERIES), count(tx, _PUBLICATIONS)

    before, found = await notified.served.database.read(left), []

    def lock(tx: Connection, account_id: str) -> None:
        found.append(left(tx))
        lock_account(tx, account_id)

    monkeypatch.setattr(publishing, "lock_account", lock)  # the first of the topic's deletion
    monkeypatch.setattr(delivery_rows, "DROPPED_AT_ONCE", 2)
    assert (await notified.ask("DELETE", f"/v1/topics/{topic['id']}")).status_code == 204
    assert found == [(before[0] - 6, before[1] - 3)]  # what there is of other topics


async def test_of_too_many_events_for_a_topic_that_is_gone_the_oldest_are_dropped_and_counted(
    notified: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MAX_WAITING", 3)
    topic = await notified.topic()
    rule = {"topic": topic["crn"], "event_types": ["registry.repository.created"]}
    made = await notified.ask("POST", "/v1/event-rules", rule)
    assert made.status_code == 201, made.text
    assert (await notified.ask("DELETE", f"/v1/topics/{topic['id']}")).status_code == 204
    for number in range(5):  # none of these fails
        answer = await notified.ask("POST", "/v1/repositories", {"name": f"r{number}"})
        assert answer.status_code == 201, answer.text
    await notified.deliver()
    path = f"/v1/event-rules/{made.json()['event_rule']['id']}"
    (fault,) = (await notified.ask("GET", path)).json()["event_rule"]["faults"]
    assert (fault["code"], fault["occurrences"]) == ("TOPIC_MISSING", 5)
    assert fault["details"] == {"waiting": "3", "dropped": "2"}
    await notified.confirmed(await notified.topic())
    notified.hook.got.clear()
    await notified.deliver()
    names = [each.envelope["attributes"]["repository"] for each in notified.hook.got]
    assert sorted(names) == ["r2", "r3", "r4"]


async def test_a_subscriptions_job_is_locked_before_it(notified: World) -> None:
    topic = await notified.topic()
    confirmed = await notified.confirmed(topic)
    other = (await notified.subscribe(topic, endpoint=f"{notified.hook.url}/2")).json()
    noted = notified.served.database.noted
    noted.clear()
    await notified.publish(topic)
    await notified.deliver()
    # The foreign key of a delivery locks the subscription.
    assert _comes_first(notified, confirmed["id"], "INSERT INTO deliveries")
    noted.clear()
    other_id = other["subscription"]["id"]
    path = f"/v1/topics/{topic['id']}/subscriptions/{other_id}/resend-confirmation"
    assert (await notified.ask("POST", path)).status_code == 202
    assert _comes_first(notified, other_id, "FOR UPDATE")


def _comes_first(world: World, subscription_id: str, lock: str) -> bool:
    """Return True if the job of a subscription is locked before a statement with `lock`."""
    texts = [
        each.statement.postgresql
        for each in world.served.database.noted
        if subscription_id in each.texts
    ]
    job, other = (
        next(place for place, text in enumerate(texts) if words in text)
        for words in ("INSERT INTO jobs", lock)
    )
    return job < other
