"""Part of the composition root: event rules learn of the topics of the notifications family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloudcore.db.base import Connection
from cloudcore.notifications.topic import TopicMissing
from cloudcore.notifications.topics import ROWS, states_of
from cloudcore.resource_references import Authorize
from registry.services.events import NamedTopic, TopicNotFound


def topic_states(
    region: str, tx: Connection, account_id: str, crns: Sequence[str]
) -> Mapping[str, NamedTopic]:
    """Return by CRN whether topics of an account exist."""
    found = states_of(tx, account_id, region, crns)
    return {
        crn: NamedTopic(state.id)
        if state.missing is None
        else NamedTopic(
            None,
            state.missing.first_at,
            state.missing.last_at,
            state.missing.events - state.missing.dropped,
            state.missing.dropped,
        )
        for crn, state in found.items()
    }


def named_topic(
    region: str, tx: Connection, account_id: str, value: str, authorize: Authorize
) -> str:
    """Return the CRN of the topic that the request of a rule names."""
    try:
        return ROWS.resolve(tx, account_id, region, "topic", value, authorize).crn
    except TopicMissing:
        raise TopicNotFound from None
