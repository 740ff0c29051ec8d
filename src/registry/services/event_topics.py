"""What event rules need to know of topics, which are another family's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.resource_references import Authorize


class NamedTopic(NamedTuple):
    """Whether a topic exists that a rule names."""

    id: str | None
    """None if there is no such topic; then the moments may be known."""
    missing_since: int | None = None
    missing_at: int | None = None
    """When an event was last told to it, or it was deleted."""
    waiting: int = 0
    """Events that were told to it since; they are delivered when it exists."""
    dropped: int = 0
    """Events before these; there were too many."""


class TopicNotFound(NotFound):
    """There is no such topic of the account."""

    def __init__(self) -> None:
        super().__init__("there is no such topic; create it first", reason="topic_not_found")


FindTopics = Callable[[Connection, str, Sequence[str]], Mapping[str, NamedTopic]]
"""Returns the topics of an account, by CRN; of each that is asked for."""


ResolveTopic = Callable[[Connection, str, str, Authorize], str]
"""Returns the CRN of the topic of an account that an id, a name or a CRN means. It raises
`TopicNotFound`, and otherwise what `cloudcore.resource_references.resolve` does."""


def no_topic(_tx: Connection, _account_id: str, _value: str, _authorize: Authorize) -> str:
    """Raise that there is none, as in an install without the family."""
    raise TopicNotFound


def no_topics(_tx: Connection, _account_id: str, crns: Sequence[str]) -> Mapping[str, NamedTopic]:
    """Return that there are none, as in an install without the family."""
    return {crn: NamedTopic(None) for crn in crns}
