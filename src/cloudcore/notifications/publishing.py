"""Publish messages, and turn messages and events from the outbox into deliveries.

An event for a topic waits if the topic does not exist, or earlier events already wait for the
topic. Waiting events are released when the topic has an active subscription.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import json_text
from cloudcore.errors import InvalidInput
from cloudcore.jobs.kinds import Done, Next
from cloudcore.jobs.outbox import UNDELIVERED, OutboxEvent, emit
from cloudcore.jobs.queue import Job
from cloudcore.notifications import delivery_rows, subscriptions, topics
from cloudcore.notifications.delivery_rows import enqueue_release, wake
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.notifications.topic import (
    PUBLISHED_MESSAGES,
    Publication,
    Topic,
    TopicMissing,
    matches,
    message_size,
    strings_of,
)
from cloudcore.notifications.topics import ROWS as TOPICS
from cloudcore.quotas.limits import Counted, QuotaUse, count_up_to_limit
from cloudcore.resource_names import Crn
from cloudcore.wire import rfc3339

PUBLISHED: Final = "notifications.message.published"
"""The type of the outbox event for a published message."""

PAGE: Final = 200
"""How many subscriptions one transaction reads."""
_RELEASED: Final = 20
UNDELIVERED_USE: Final = Counted(
    PUBLISHED_MESSAGES, count_up_to_limit(PUBLISHED_MESSAGES, UNDELIVERED)
)
_COUNTED: Final = {
    delivery_rows.WAITING: "deliveries wait for",
    delivery_rows.WAITING_SIZE: "bytes of messages wait for",
    UNDELIVERED_USE: "messages are on their way to",
}


async def drop_messages(database: Database, topic: Topic) -> None:
    """Delete the messages and deliveries of a topic that is about to be deleted.

    This takes many short transactions, between which others can write. A single transaction could
    take many seconds, during which nothing else could write to SQLite.
    """
    for drop in (delivery_rows.drop_deliveries, delivery_rows.drop_publications):
        while await database.write(drop, topic.account_id, topic.id):
            pass


def delete_topic(tx: Connection, topic: Topic, now: int) -> None:
    """Delete a topic with its subscriptions and their deliveries.

    Raise `TopicMissing` if the topic was already deleted.
    """
    lock_account(tx, topic.account_id)
    if tx.execute(TOPICS.statements["remove"], of_id=topic.id, account_id=topic.account_id) != 1:
        raise TopicMissing
    topics.note_missing(tx, topic.account_id, topic.crn, 0, now)


def publish(
    tx: Connection,
    topic: Topic,
    message: str,
    subject: str | None,
    attributes: Mapping[str, str],
    now: int,
    *,
    content_type: str | None = None,
    checks_room: bool = True,
) -> str:
    """Publish a message to a topic; return the message's id.

    Raise `TopicMissing` if the topic was deleted; with `checks_room`, raise `QuotaExceeded` if too
    many messages of the account wait.
    """
    if TOPICS.hold(tx, topic.account_id, topic.id) is None:
        raise TopicMissing
    uses = _check_room(tx, topic.account_id) if checks_room else ()
    payload = {
        "topic_id": topic.id,
        "subject": subject,
        "message": message,
        "attributes": attributes,
        "content_type": content_type,
    }
    message_id = emit(tx, PUBLISHED, topic.account_id, payload, now)
    for counted, use in uses:
        counted.emit_level(tx, topic.account_id, use, now)
    return message_id


def _check_room(tx: Connection, account_id: str) -> list[tuple[Counted, QuotaUse]]:
    advice = "publish more slowly, or end those whose endpoints do not answer"
    return [
        (
            counted,
            counted.check(
                tx, account_id, f"at most {{limit}} {words} an account's subscriptions: {advice}"
            ),
        )
        for counted, words in _COUNTED.items()
    ]


class FanOut(NamedTuple):
    """A subscriber of the outbox, which turns messages and events into deliveries."""

    needs: NotificationNeeds

    async def receive(self, event: OutboxEvent) -> None:
        """Insert the deliveries of an event; a repeated call inserts no delivery twice."""
        payload = event.payload
        if event.type == PUBLISHED:
            await self._publish(event)
        elif isinstance(payload, Mapping) and "data" in payload:
            if "topics" in payload:
                crns = payload["topics"]
            else:  # an event of `emit_from_platform`: the topics that rules name now
                topics_of = self.needs.events.topics_of
                crns = await self.needs.database.read(topics_of, event.account_id, event.type)
            for crn in crns:
                await self._tell(event, crn)

    async def _publish(self, event: OutboxEvent) -> None:
        """Deliver a message; drop it if its topic is gone."""
        topic_id = event.payload["topic_id"]
        topic = await self.needs.database.read(TOPICS.find, event.account_id, topic_id)
        if topic is not None:
            message = Publication(
                id=event.id,
                topic_id=topic.id,
                account_id=event.account_id,
                subject=event.payload["subject"],
                message=event.payload["message"],
                attributes=event.payload["attributes"],
                published_at=event.created_at,
                content_type=event.payload["content_type"],
            )
            await _insert_deliveries(self.needs, topic, message, event.created_at)

    async def _tell(self, event: OutboxEvent, crn: str) -> None:
        """Deliver an event to a topic, or let the event wait for the topic."""
        try:
            name = Crn.parse(crn).name
        except InvalidInput:
            return
        database, region = self.needs.database, self.needs.region
        topic = await database.read(_find_ready_topic, event.account_id, region, name, crn)
        if topic is None:
            now = self.needs.clock()
            topic = await database.write(_wait_unless_ready, event, crn, region, name, now)
        if topic is not None:
            message = _event_message(event, topic)
            await _insert_deliveries(self.needs, topic, message, event.created_at)


def _find_ready_topic(
    tx: Connection, account_id: str, region: str, name: str, crn: str
) -> Topic | None:
    """Return a topic; None if it does not exist, or earlier events still wait for it."""
    topic = TOPICS.find_named(tx, account_id, region, name)
    if topic is None or topics.list_waiting(tx, account_id, crn, 1):
        return None
    return topic


def _wait_unless_ready(
    tx: Connection, event: OutboxEvent, crn: str, region: str, name: str, now: int
) -> Topic | None:
    """Return the topic if it is ready by now; otherwise store that the event waits for it."""
    lock_account(tx, event.account_id)
    topic = _find_ready_topic(tx, event.account_id, region, name, crn)
    if topic is not None:
        return topic
    is_new = topics.add_waiting(tx, event, crn)
    topics.drop_oldest_waiting(tx, event.account_id, crn)
    there = TOPICS.find_named(tx, event.account_id, region, name)
    if there is None:
        if is_new:
            topics.note_missing(tx, event.account_id, crn, 1, now)
    else:
        release_waiting(tx, there, now)
    return None


def release_waiting(tx: Connection, topic: Topic, now: int) -> None:
    """If a topic has waiting events and an active subscription, enqueue their delivery."""
    account_id = topic.account_id
    is_told = topics.list_waiting(tx, account_id, topic.crn, 1)
    if is_told and subscriptions.has_active_subscription(tx, account_id, topic.id):
        enqueue_release(tx, account_id, topic.id, now)


async def release(needs: NotificationNeeds, job: Job) -> Next | Done:
    """Deliver some of the events that wait for a topic; the step of the job `RELEASE`."""
    assert job.account_id is not None
    database = needs.database
    topic = await database.read(TOPICS.find, job.account_id, job.arguments["topic_id"])
    if topic is None or not await database.read(
        subscriptions.has_active_subscription, topic.account_id, topic.id
    ):
        return Done()
    waiting = await database.read(topics.list_waiting, topic.account_id, topic.crn, _RELEASED)
    for event in waiting:
        # Subscriptions that are active now get these events, which came before any was active.
        await _insert_deliveries(needs, topic, _event_message(event, topic), needs.clock())
    end = partial(_end_release, topic, [event.id for event in waiting], needs.clock())
    return Next(None, end) if len(waiting) == _RELEASED else Done(end)


def _end_release(topic: Topic, ids: list[str], now: int, tx: Connection) -> None:
    lock_account(tx, topic.account_id)
    topics.remove_waiting(tx, topic.account_id, topic.crn, ids)
    release_waiting(tx, topic, now)


def _event_message(event: OutboxEvent, topic: Topic) -> Publication:
    """Return the message about an event for a topic.

    One event may go to several topics; each message has its own id, which is the same in every
    attempt.
    """
    data: Any = event.payload.get("data")
    message = {
        "id": event.id,
        "type": event.type,
        "occurred_at": rfc3339(event.created_at),
        "account_id": event.account_id,
        "data": data,
    }
    return Publication(
        id=str(uuid5(UUID(event.id), topic.id)),
        topic_id=topic.id,
        account_id=event.account_id,
        subject=event.type,
        message=json_text(message),
        attributes={
            "event_type": event.type,
            **(strings_of(data) if isinstance(data, Mapping) else {}),
        },
        published_at=event.created_at,
        content_type="application/json",
    )


async def _insert_deliveries(
    needs: NotificationNeeds, topic: Topic, message: Publication, active_at: int
) -> None:
    """Insert a message's deliveries to matching subscriptions that were active at `active_at`."""
    after: str | None = ""
    while after is not None:
        after = await needs.database.write(
            _insert_page, topic, message, active_at, after, needs.clock()
        )


def _insert_page(
    tx: Connection, topic: Topic, message: Publication, active_at: int, after: str, now: int
) -> str | None:
    """Insert one page of deliveries; return the last subscription's id, or None at the end."""
    if TOPICS.hold(tx, topic.account_id, topic.id) is None:
        return None  # deleted meanwhile, with its subscriptions
    found = subscriptions.list_active(tx, topic.account_id, topic.id, active_at, after, PAGE)
    if not after and (not found or not delivery_rows.add_publication(tx, message)):
        return None
    size = message_size(message)
    for subscription_id, policy in found:
        if matches(policy, message.attributes):
            ids = (topic.account_id, subscription_id)
            wake(tx, *ids, now)  # first: a step locks its job before the subscription
            delivery_rows.add_delivery(tx, *ids, message.id, now, size=size)
    if len(found) == PAGE:
        return found[-1][0]
    delivery_rows.end_publication(tx, topic.account_id, message.id, now)
    return None
