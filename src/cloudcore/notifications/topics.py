"""The topics of accounts: their rows, changes with their rules, and publishing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import UniqueConstraint, bindparam, select

from cloudcore.account_rows import lock_account
from cloudcore.crn import Crn
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.errors import QuotaExceeded
from cloudcore.jobs.outbox import count_pending, emit
from cloudcore.notifications import delivery_rows, missing_topics
from cloudcore.notifications.delivery_policy import DeliveryPolicy, shown, stored
from cloudcore.notifications.missing_topics import MissingTopic
from cloudcore.notifications.rules import (
    MAX_DELIVERIES,
    MAX_DELIVERY_BYTES,
    MAX_UNSORTED,
    TopicMissing,
)
from cloudcore.notifications.topic import TOPIC, Topic
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.rows import Rows
from cloudcore.web.context import RequestContext

PUBLISHED: Final = "notifications.message.published"
"""Type of the event of a message that somebody publishes."""

ROWS: Final = Rows(
    TOPIC, unique=UniqueConstraint("account_id", "region", "name"), missing=TopicMissing
)
_t = ROWS.table.c
_IDS_NAMED: Final = Statement(
    select(_t.name, _t.id).where(
        _t.account_id == bindparam("account_id"),
        _t.region == bindparam("region"),
        _t.name.in_(listed("names")),
    )
)


class TopicState(NamedTuple):
    """Whether a topic exists that something names."""

    id: str | None
    """None if there is no such topic."""
    missing: MissingTopic | None = None
    """What is known of its absence, if anything is."""


def _found(tx: Connection, topic: Topic, old: Topic | None) -> Topic:
    """Note that a topic that is new is no longer missing."""
    if old is None:
        missing_topics.forget_missing(tx, topic.account_id, topic.crn)
    return topic


async def _policy(_ctx: RequestContext, given: DeliveryPolicy | None) -> Mapping[str, object]:
    return {"delivery_policy": stored(given)}


TOPICS: Final = Methods(
    ROWS,
    before_save=_found,
    composites=(
        Composite(
            name="delivery_policy",
            words="How failed deliveries to its subscriptions are retried, unless they say"
            " otherwise: only the fields that are set. Null: the platform's settings.",
            given=DeliveryPolicy,
            shown=DeliveryPolicy,
            resolve=_policy,
            show=lambda topic: shown(topic.delivery_policy),
        ),
    ),
    docs={"update": "Change the description, the tags or the delivery policy of a topic."},
)


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
    if tx.execute(ROWS.statements["remove"], of_id=topic.id, account_id=topic.account_id) != 1:
        raise TopicMissing
    missing_topics.note_missing(tx, topic.account_id, topic.crn, 0, now)


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
    if ROWS.hold(tx, topic.account_id, topic.id) is None:
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
    named = text_list(list(names.values()))
    rows = tx.rows(_IDS_NAMED, account_id=account_id, region=region, names=named)
    ids = {row[0]: row[1] for row in rows}
    absent = [crn for crn in crns if names[crn] not in ids]
    known = missing_topics.list_missing(tx, account_id, absent) if absent else {}
    return {crn: TopicState(ids.get(name), known.get(crn)) for crn, name in names.items()}
