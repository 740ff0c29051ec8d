"""An event rule (`EventRule`), which sends events of an account's resources to a topic.

Its table is in `event_rules`, so that commands can import this description without SQLAlchemy.
"""

from __future__ import annotations

from typing import Annotated, Final

from cloudcore.resources.resource import Record, Resource, fixed


class EventRule(Record, frozen=True, kw_only=True):
    """A rule of an account: events about its repositories are sent to a topic."""

    topic: Annotated[str, fixed()]
    """The topic's CRN."""
    event_types: Annotated[tuple[str, ...], fixed()]
    """Each is an exact type, or a prefix followed by ``*``."""
    repository_prefix: Annotated[str, fixed()] = ""
    """Prefix of the repositories' names; empty: all repositories."""


EVENT_RULE: Final = Resource(
    record=EventRule,
    service="registry",
    one="event_rule",
    many="event_rules",
    key="id",
    is_queried_in_all_regions=True,
    quota=50,  # every change of an account's repositories is matched with all its rules
    # By hand: the bodies name a topic, which need not exist any more.
    methods=(),
    actions={"create": "PutEventRule", "list": "DescribeEventRules", "delete": "DeleteEventRule"},
    methods_with_events=(),
)
