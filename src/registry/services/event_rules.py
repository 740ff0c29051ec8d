"""Event rules of an account: each sends matching events of its resources to one of its topics.

`services.events` matches the rules; the notifications family delivers to subscribers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound, QuotaExceeded
from cloudcore.resource_references import Authorize
from registry.errors import NameInvalid
from registry.metadata import event_rules
from registry.metadata.event_rules import EventRule
from registry.oci.reference import parse_name
from registry.services import events


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


MAX_RULES: Final = 50
"""The most rules that an account can have; every change of its repositories is matched with all."""

EVENT_TYPES: Final = (
    events.IMAGE_PUSHED,
    events.IMAGE_CACHED,
    events.IMAGE_DELETED,
    events.TAG_MOVED,
    events.TAG_DELETED,
    events.REPOSITORY_CREATED,
    events.REPOSITORY_DELETED,
    events.LIFECYCLE_COMPLETED,
)

_FAMILIES: Final = re.compile(r"[a-z]+\.(?:[a-z]+\.)?\*")


def check_rule(
    event_types: Sequence[str], repository_prefix: str, known: Sequence[str] = EVENT_TYPES
) -> None:
    """Check a rule; refuse one that no event can match. `known` are the types of all events.

    Raises:
        InvalidInput: with ``field`` and ``reason``.

    """
    for index, wanted in enumerate(event_types):
        if not _is_known(wanted, known):
            raise InvalidInput(
                f"an event type is one of {', '.join(_near(wanted, known))}, or one such as "
                "registry.tag.*",
                field=f"event_types[{index}]",
                reason="not_allowed",
            )
    if repository_prefix and not any(_is_known(each, EVENT_TYPES) for each in event_types):
        raise InvalidInput(
            "only events of repositories have a prefix of their names",
            field="repository_prefix",
            reason="not_allowed",
        )
    if not _begins_a_name(repository_prefix):
        raise InvalidInput(
            "no repository name can begin with this", field="repository_prefix", reason="malformed"
        )


def create_rule(
    tx: Connection, rule: EventRule, find_topics: FindTopics
) -> tuple[EventRule, NamedTopic]:
    """Add a rule and return it, with its topic.

    Raises:
        TopicNotFound
        Conflict: the account has an equal rule.
        QuotaExceeded: the account has `MAX_RULES` rules.

    """
    topic = find_topics(tx, rule.account_id, [rule.topic])[rule.topic]
    if topic.id is None:
        raise TopicNotFound
    lock_account(tx, rule.account_id)
    there = event_rules.find_rules(tx, rule.account_id).rules
    for other in there:
        if _asks(other) == _asks(rule):
            raise Conflict("there is an equal rule", id=other.id)
    if len(there) >= MAX_RULES:
        raise QuotaExceeded(
            f"an account has at most {MAX_RULES} event rules",
            quota="event_rules",
            limit=MAX_RULES,
            used=len(there),
        )
    event_rules.add_rule(tx, rule)
    return rule, topic


def get_rule(tx: Connection, account_id: str, rule_id: str) -> EventRule:
    """Return a rule of an account, or raise `NotFound`."""
    found = event_rules.find_rule(tx, account_id, rule_id)
    if found is None:
        raise _missing()
    return found


def delete_rule(tx: Connection, account_id: str, rule_id: str) -> None:
    """Delete a rule; events already in the outbox are still delivered.

    Raises:
        NotFound.

    """
    if not event_rules.remove_rule(tx, account_id, rule_id):
        raise _missing()


def _is_known(wanted: str, known: Sequence[str]) -> bool:
    if not wanted.endswith("*"):
        return wanted in known
    return bool(_FAMILIES.fullmatch(wanted)) and any(each.startswith(wanted[:-1]) for each in known)


def _near(wanted: str, known: Sequence[str]) -> Sequence[str]:
    """Return the types of the service that a type begins with, or what means all of each."""
    own = [each for each in known if each.partition(".")[0] == wanted.partition(".")[0]]
    return own or list(dict.fromkeys(f"{each.partition('.')[0]}.*" for each in known))


def _begins_a_name(prefix: str) -> bool:
    """Return True if a repository's name can start with `prefix`."""
    for rest in ("", "a"):
        with suppress(NameInvalid):
            parse_name(f"aa/{prefix}{rest}")
            return True
    return False


def _asks(rule: EventRule) -> tuple[str, frozenset[str], str]:
    return rule.topic, frozenset(rule.event_types), rule.repository_prefix


def _missing() -> NotFound:
    return NotFound("there is no such event rule")
