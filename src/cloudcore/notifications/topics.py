"""The topics of accounts: their rows, and changes with their rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import UniqueConstraint, bindparam, select

from cloudcore.crn import Crn
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.notifications import missing_topics
from cloudcore.notifications.delivery_policy import DeliveryPolicy, shown, stored
from cloudcore.notifications.missing_topics import MissingTopic
from cloudcore.notifications.topic import TOPIC, Topic, TopicMissing
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.rows import Rows
from cloudcore.web.context import RequestContext

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
