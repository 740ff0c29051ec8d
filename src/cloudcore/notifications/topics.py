"""Topics of an account: changes with their rules, and publishing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cloudcore.account_rows import lock_account
from cloudcore.crn import Crn
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict, QuotaExceeded
from cloudcore.jobs.outbox import count_pending, emit
from cloudcore.notifications import delivery_rows, topic_rows
from cloudcore.notifications.records import Topic
from cloudcore.notifications.rules import (
    MAX_DELIVERIES,
    MAX_DELIVERY_BYTES,
    MAX_UNSORTED,
    TopicMissing,
)
from cloudcore.notifications.topic_rows import MissingTopic

MAX_TOPICS: Final = 1000
"""Maximum number of topics of an account."""
PUBLISHED: Final = "notifications.message.published"
"""Type of the event of a message that somebody publishes."""


class TopicState(NamedTuple):
    """Whether a topic exists that something names."""

    id: str | None
    """None if there is no such topic."""
    missing: MissingTopic | None = None
    """What is known of its absence, if anything is."""


def create_topic(tx: Connection, topic: Topic) -> Topic:
    """Insert a topic.

    Raises:
        Conflict: the account has a topic of this name.
        QuotaExceeded: the account has `MAX_TOPICS`.

    """
    lock_account(tx, topic.account_id)
    used = topic_rows.count_topics(tx, topic.account_id, topic.region)
    if used >= MAX_TOPICS:
        raise QuotaExceeded(
            f"an account has at most {MAX_TOPICS} topics",
            quota="topics",
            limit=MAX_TOPICS,
            used=used,
        )
    if not topic_rows.add_topic(tx, topic):
        raise Conflict("there is a topic of this name", name=topic.name)
    topic_rows.forget_missing(tx, topic.account_id, topic.crn)
    return topic


def get_topic(tx: Connection, account_id: str, region: str, topic_id: str) -> Topic:
    """Return a topic of an account, or raise `TopicMissing`."""
    found = topic_rows.find_topic(tx, account_id, topic_id)
    if found is None or found.region != region:
        raise TopicMissing
    return found


def update_topic(tx: Connection, topic: Topic, changes: Mapping[str, Any], now: int) -> Topic:
    """Change the description, the tags or the delivery policy of a topic."""
    found = topic_rows.lock_topic(tx, topic.account_id, topic.id)
    if found is None:
        raise TopicMissing
    if not changes:
        return found
    changed = found._replace(**changes, updated_at=now)
    topic_rows.save_topic(tx, changed)
    return changed


async def drop_messages(database: Database, topic: Topic) -> None:
    """Drop the messages of a topic that is to be deleted, and what waits for its subscribers.

    It owns several transactions, between which others have their turn: to drop all in that of the
    deletion would take many seconds, for which nobody else could write to SQLite.
    """
    for drop in (delivery_rows.drop_deliveries, delivery_rows.drop_publications):
        while await database.write(drop, topic.account_id, topic.id):
            pass


def delete_topic(tx: Connection, topic: Topic, now: int) -> None:
    """Delete a topic with its subscriptions; what is still to be delivered to them is dropped.

    Raises:
        TopicMissing

    """
    lock_account(tx, topic.account_id)
    if not topic_rows.remove_topic(tx, topic.account_id, topic.id):
        raise TopicMissing
    topic_rows.note_missing(tx, topic.account_id, topic.crn, 0, now)


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
    """Publish a message to a topic; return its id.

    Raises:
        TopicMissing: it was deleted.
        QuotaExceeded: too many messages of the account wait, if it `checks_room`.

    """
    if not topic_rows.hold_topic(tx, topic.account_id, topic.id):
        raise TopicMissing
    if checks_room:
        _check_room(tx, topic.account_id)
    payload = {
        "topic_id": topic.id,
        "subject": subject,
        "message": message,
        "attributes": attributes,
        "content_type": content_type,
    }
    return emit(tx, PUBLISHED, topic.account_id, payload, now)


def _check_room(tx: Connection, account_id: str) -> None:
    found = delivery_rows.backlog_of_account(tx, account_id, MAX_DELIVERIES)
    unsorted = count_pending(tx, account_id, MAX_UNSORTED)
    _check(found.deliveries, MAX_DELIVERIES, "deliveries wait for", quota="waiting_deliveries")
    _check(found.size, MAX_DELIVERY_BYTES, "bytes of messages wait for", quota="waiting_bytes")
    _check(unsorted, MAX_UNSORTED, "messages are on their way to", quota="published_messages")


def _check(used: int, limit: int, words: str, *, quota: str) -> None:
    if used >= limit:
        raise QuotaExceeded(
            f"at most {limit} {words} an account's subscriptions: publish more slowly, or end those"
            " whose endpoints do not answer",
            quota=quota,
            limit=limit,
            used=used,
        )


def states_of(
    tx: Connection, account_id: str, region: str, crns: Sequence[str]
) -> dict[str, TopicState]:
    """Return by CRN whether these topics of an account exist."""
    if not crns:
        return {}
    names = {crn: Crn.parse(crn).name for crn in crns}
    ids = topic_rows.ids_of_topics(tx, account_id, region, list(names.values()))
    absent = [crn for crn in crns if names[crn] not in ids]
    known = topic_rows.list_missing(tx, account_id, absent) if absent else {}
    return {crn: TopicState(ids.get(name), known.get(crn)) for crn, name in names.items()}
