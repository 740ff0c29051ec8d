"""The topics of accounts: their rows and rules, and topics that do not exist yet.

Events for a missing topic wait until it is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, bound, deletion, given, json_text
from cloudcore.db.schema import ByteOrdered, Id, Moment
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.db.tables import columns, indexes, named_index, refers, table
from cloudcore.jobs.outbox import OutboxEvent
from cloudcore.notifications.delivery_policy import DeliveryPolicy, shown, stored
from cloudcore.notifications.topic import TOPIC, Topic, TopicMissing
from cloudcore.resource_names import Crn
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.rows import Rows
from cloudcore.web.context import RequestContext

WAITING_SECONDS: Final = 30 * 24 * 3600
"""An event that still waits for its topic is deleted after this time."""
MAX_WAITING: Final = 10_000
"""How many events may wait for one topic; beyond that, the oldest are dropped."""

# A topic that is referred to but does not exist: it was deleted, or never created.
missing_topics = table(
    "missing_topics",
    refers("account_id KEY", "accounts"),
    columns(ByteOrdered, "crn KEY"),
    columns(Moment, "first_at, last_at"),
    columns(sa.BigInteger, "events"),  # how many were sent to it meanwhile
    indexes("last_at"),
)

# Events for a topic that does not exist; delivered when it is created.
waiting_events = table(
    "waiting_events",
    columns(Id, "event_id KEY"),
    columns(ByteOrdered, "crn KEY"),  # of the topic
    refers("account_id", "accounts"),
    columns(ByteOrdered, "type"),
    columns(sa.Text, "payload"),
    columns(Moment, "created_at"),
    named_index("topic", "account_id, crn, event_id"),
    indexes("created_at"),
)


_m = missing_topics.c
_w = waiting_events.c


class MissingTopic(NamedTuple):
    """A topic that does not exist, although a rule names it."""

    crn: str
    first_at: int
    last_at: int
    events: int
    """How many events were sent to it since `first_at`."""

    @property
    def dropped(self) -> int:
        """Return how many of these events were dropped because too many waited."""
        return max(0, self.events - MAX_WAITING)


_new_missing: Final = insert(missing_topics).values(
    **bound(("account_id", "crn", "events")),
    first_at=sa.bindparam("now"),
    last_at=sa.bindparam("now"),
)
_NOTE_MISSING: Final = Statement(
    _new_missing.on_conflict_do_update(
        index_elements=["account_id", "crn"],
        set_={
            "last_at": _new_missing.excluded.last_at,
            "events": _m.events + sa.bindparam("events"),
        },
    )
)
_OF_CRN: Final = given(_m.account_id, _m.crn)
_FORGET_MISSING: Final = Statement(sa.delete(missing_topics).where(_OF_CRN))
_LIST_MISSING: Final = Statement(
    sa.select(_m.crn, _m.first_at, _m.last_at, _m.events).where(
        given(_m.account_id), _m.crn.in_(listed("crns"))
    )
)
_ADD_WAITING: Final = Statement(
    insert(waiting_events)
    .values(bound(("event_id", "crn", "account_id", "type", "payload", "created_at")))
    .on_conflict_do_nothing()
)
_WAIT_FOR: Final = given(_w.account_id, _w.crn)
_LIST_WAITING: Final = paged(
    sa.select(_w.event_id, _w.account_id, _w.type, _w.payload, _w.created_at)
    .where(_WAIT_FOR)
    .order_by(_w.event_id)
)
_REMOVE_WAITING: Final = Statement(
    sa.delete(waiting_events).where(_WAIT_FOR, _w.event_id.in_(listed("ids")))
)
_too_old: Final = (
    sa.select(_w.event_id)
    .where(_WAIT_FOR)
    .order_by(_w.event_id.desc())
    .limit(ONE)
    .offset(sa.bindparam("most"))
    .scalar_subquery()
)
_DROP_OLDEST: Final = Statement(sa.delete(waiting_events).where(_WAIT_FOR, _w.event_id <= _too_old))
forget_waiting: Final = deletion(_w.created_at, kept_seconds=WAITING_SECONDS)
"""Deletes a batch of the events that have waited for `WAITING_SECONDS`."""
forget_old_missing: Final = deletion(_m.last_at, kept_seconds=WAITING_SECONDS)
"""Deletes a batch of records of missing topics that got no event for `WAITING_SECONDS`."""


def note_missing(tx: Connection, account_id: str, crn: str, events: int, now: int) -> None:
    """Store that a topic does not exist; add `events` to the number of events sent to the topic."""
    tx.execute(_NOTE_MISSING, account_id=account_id, crn=crn, events=events, now=now)


def add_waiting(tx: Connection, event: OutboxEvent, crn: str) -> bool:
    """Insert an event as waiting for a topic; return False if it already waits."""
    added = tx.execute(
        _ADD_WAITING,
        event_id=event.id,
        crn=crn,
        account_id=event.account_id,
        type=event.type,
        payload=json_text(event.payload),
        created_at=event.created_at,
    )
    return added == 1


def drop_oldest_waiting(tx: Connection, account_id: str, crn: str) -> None:
    """Delete the oldest events that wait for a topic, if there are more than `MAX_WAITING`."""
    tx.execute(_DROP_OLDEST, account_id=account_id, crn=crn, most=MAX_WAITING)


def list_waiting(tx: Connection, account_id: str, crn: str, limit: int) -> list[OutboxEvent]:
    """Return up to `limit` events that wait for a topic, oldest first."""
    return [
        OutboxEvent(event_id, owner, kind, msgspec.json.decode(payload), created_at)
        for event_id, owner, kind, payload, created_at in tx.rows(
            _LIST_WAITING, account_id=account_id, crn=crn, limit=limit
        )
    ]


def remove_waiting(tx: Connection, account_id: str, crn: str, ids: Sequence[str]) -> None:
    """Delete the events with these ids that wait for a topic."""
    tx.execute(_REMOVE_WAITING, account_id=account_id, crn=crn, ids=text_list(ids))


ROWS: Final = Rows(
    TOPIC, unique=sa.UniqueConstraint("account_id", "region", "name"), missing=TopicMissing
)
_t = ROWS.table.c
_IDS_NAMED: Final = Statement(
    sa.select(_t.name, _t.id).where(
        given(_t.account_id, _t.region),
        _t.name.in_(listed("names")),
    )
)


class TopicState(NamedTuple):
    """The state of a topic that a rule names: its id, or a record that the topic is missing."""

    id: str | None
    """None if there is no such topic."""
    missing: MissingTopic | None = None
    """The record of a missing topic, or None."""


def _found(tx: Connection, topic: Topic, old: Topic | None) -> Topic:
    """If a topic is new, delete the record that it was missing; return the topic."""
    if old is None:
        tx.execute(_FORGET_MISSING, account_id=topic.account_id, crn=topic.crn)
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


def states_of(
    tx: Connection, account_id: str, region: str, crns: Sequence[str]
) -> dict[str, TopicState]:
    """Return the state of each of the account's topics in `crns`, by CRN."""
    if not crns:
        return {}
    names = {crn: Crn.parse(crn).name for crn in crns}
    named = text_list(list(names.values()))
    rows = tx.rows(_IDS_NAMED, account_id=account_id, region=region, names=named)
    ids = {row[0]: row[1] for row in rows}
    missing: dict[str, MissingTopic] = {}
    if absent := [crn for crn in crns if names[crn] not in ids]:
        found = tx.rows(_LIST_MISSING, account_id=account_id, crns=text_list(absent))
        missing = {row[0]: MissingTopic(*row) for row in found}
    return {crn: TopicState(ids.get(name), missing.get(crn)) for crn, name in names.items()}
