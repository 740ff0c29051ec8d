"""Publish events of the registry to the topics that an account's rules name.

An event is written to the outbox in the transaction of its change, so it is there if and only if
the change is committed. An account without rules has no extra cost. Each rule sends matching events
about the account's resources to one topic; the notifications family delivers them to subscribers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.jobs.outbox import emit
from cloudcore.resource_references import Authorize
from cloudcore.wire import rfc3339
from registry.errors import NameInvalid
from registry.metadata.event_rule import EventRule
from registry.metadata.event_rules import EVENT_RULES, find_rules
from registry.metadata.images.manifests import Description, describe
from registry.metadata.repositories.repository import Repository
from registry.oci.reference import parse_name
from registry.services.access.decisions import repository_crn
from registry.services.changes import Change

IMAGE_PUSHED: Final = "registry.image.pushed"
IMAGE_CACHED: Final = "registry.image.cached"
IMAGE_DELETED: Final = "registry.image.deleted"
TAG_MOVED: Final = "registry.tag.moved"
TAG_DELETED: Final = "registry.tag.deleted"
REPOSITORY_CREATED: Final = "registry.repository.created"
REPOSITORY_DELETED: Final = "registry.repository.deleted"
LIFECYCLE_COMPLETED: Final = "registry.lifecycle.completed"


class RegistryEvent(NamedTuple):
    """Something that happened in a repository."""

    type: str
    digest: str | None = None
    tag: str | None = None
    media_type: str | None = None
    artifact_type: str | None = None
    subject: str | None = None


def descriptions(
    tx: Connection, repository: Repository, ids: Sequence[str]
) -> Mapping[str, Description]:
    """Map image ids to descriptions for events; all are empty if the account has no event rules."""
    found = describe(tx, ids) if repository.has_event_rules else {}
    return dict.fromkeys(ids, Description()) | found


def publish(
    tx: Connection, change: Change, repository: Repository, events: Sequence[RegistryEvent]
) -> None:
    """Put those of the `events` that match a rule of the account into the outbox.

    Call this last in a transaction: until the transaction ends, other transactions of the account
    may wait for it.
    """
    if not events or not repository.has_event_rules:
        return
    found = find_rules(tx, repository.account_id)
    for event in events:
        topics = sorted(
            {
                rule.topic
                for rule in found.rules
                if repository.name.startswith(rule.repository_prefix)
                and _matches_type(event.type, rule.event_types)
            }
        )
        if topics:
            data = _data(event, change, repository, found.handle)
            emit(
                tx, event.type, repository.account_id, {"topics": topics, "data": data}, change.now
            )


def matching_topics(tx: Connection, account_id: str, event_type: str) -> Sequence[str]:
    """Return the topics to which an account's rules send an event that is not about a repository.

    Rules with a `repository_prefix` do not match such events. This is a `TopicsOf`.
    """
    return sorted(
        {
            rule.topic
            for rule in find_rules(tx, account_id).rules
            if not rule.repository_prefix and _matches_type(event_type, rule.event_types)
        }
    )


def _matches_type(event_type: str, event_types: Sequence[str]) -> bool:
    """Return True if a rule lists this event type, itself or by a prefix and ``*``."""
    return any(
        event_type.startswith(wanted[:-1]) if wanted.endswith("*") else event_type == wanted
        for wanted in event_types
    )


def _data(
    event: RegistryEvent, change: Change, repository: Repository, handle: str
) -> dict[str, object]:
    """Return the payload of an event for its subscribers."""
    crn = repository_crn(change.registry_host.region, repository.account_id, repository.name)
    return {
        "repository": {"id": repository.id, "crn": crn, "name": repository.name},
        "uri": f"{change.registry_host.pull_host}/{handle}/{repository.name}",
        "digest": _plain(event.digest),
        "tag": event.tag,
        "media_type": event.media_type,
        "artifact_type": event.artifact_type,
        "subject": _plain(event.subject),
        "principal": change.principal or None,
        "source": change.source._asdict() if change.source else None,
        "occurred_at": rfc3339(change.now),
    }


def _plain(digest: str | None) -> str | None:
    """Return a digest as a plain `str`, since the JSON encoder refuses subclasses."""
    return None if digest is None else str(digest)


class NamedTopic(NamedTuple):
    """The topic that a rule names; it need not exist."""

    id: str | None
    """None if there is no such topic; then `missing_since` and `missing_at` may be set."""
    missing_since: int | None = None
    missing_at: int | None = None
    """When an event was last sent to the missing topic, or the topic was deleted."""
    waiting: int = 0
    """The number of events sent to the missing topic; they are delivered once it exists."""
    dropped: int = 0
    """The number of earlier events that were dropped, because too many were waiting."""


class TopicNotFound(NotFound):
    """There is no such topic of the account."""

    def __init__(self) -> None:
        super().__init__("there is no such topic; create it first", reason="topic_not_found")


FindTopics = Callable[[Connection, str, Sequence[str]], Mapping[str, NamedTopic]]
"""Maps each of these CRNs to the account's topic with this CRN."""


ResolveTopic = Callable[[Connection, str, str, Authorize], str]
"""Returns the CRN of the account's topic that an id, a name or a CRN denotes. It raises
`TopicNotFound`, and otherwise the errors of `cloudcore.resource_references.resolve`."""


def no_topic(_tx: Connection, _account_id: str, _value: str, _authorize: Authorize) -> str:
    """Raise `TopicNotFound`: the default in a registry without the notifications family."""
    raise TopicNotFound


def no_topics(_tx: Connection, _account_id: str, crns: Sequence[str]) -> Mapping[str, NamedTopic]:
    """Map all CRNs to missing topics: the default without the notifications family."""
    return {crn: NamedTopic(None) for crn in crns}


EVENT_TYPES: Final = (
    IMAGE_PUSHED,
    IMAGE_CACHED,
    IMAGE_DELETED,
    TAG_MOVED,
    TAG_DELETED,
    REPOSITORY_CREATED,
    REPOSITORY_DELETED,
    LIFECYCLE_COMPLETED,
)

_FAMILIES: Final = re.compile(r"[a-z]+\.(?:[a-z]+\.)?\*")


def check_rule(
    event_types: Sequence[str], repository_prefix: str, known: Sequence[str] = EVENT_TYPES
) -> None:
    """Check the event types and the prefix of a rule; `known` are all existing types.

    Raise `InvalidInput`, with ``field`` and ``reason``, for a type or prefix that no event can
    match.
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
    """Insert a rule; return it with its topic.

    Raises:
        TopicNotFound: the account has no such topic.
        Conflict: the account has an equal rule.
        QuotaExceeded: the account has the maximum number of rules.

    """
    topic = find_topics(tx, rule.account_id, [rule.topic])[rule.topic]
    if topic.id is None:
        raise TopicNotFound
    lock_account(tx, rule.account_id)
    for other in find_rules(tx, rule.account_id).rules:
        if _asks(other) == _asks(rule):
            raise Conflict("there is an equal rule", id=other.id)
    words = "an account has at most {limit} event rules"
    use = EVENT_RULES.counted.check(tx, rule.account_id, words, region=rule.region)
    EVENT_RULES.add(tx, rule)
    EVENT_RULES.counted.emit_level(tx, rule.account_id, use, rule.created_at)
    return rule, topic


def delete_rule(tx: Connection, rule: EventRule, now: int) -> None:
    """Delete a rule, or raise `NotFound`; events already in the outbox are still delivered."""
    EVENT_RULES.remove(tx, EVENT_RULES.lock(tx, rule.account_id, rule.id), now)


def _is_known(wanted: str, known: Sequence[str]) -> bool:
    if not wanted.endswith("*"):
        return wanted in known
    return bool(_FAMILIES.fullmatch(wanted)) and any(each.startswith(wanted[:-1]) for each in known)


def _near(wanted: str, known: Sequence[str]) -> Sequence[str]:
    """Return the known types of the service of `wanted`, or else a pattern for each service."""
    own = [each for each in known if each.partition(".")[0] == wanted.partition(".")[0]]
    return own or list(dict.fromkeys(f"{each.partition('.')[0]}.*" for each in known))


def _begins_a_name(prefix: str) -> bool:
    """Return True if some valid repository name starts with `prefix`."""
    for rest in ("", "a"):
        with suppress(NameInvalid):
            parse_name(f"aa/{prefix}{rest}")
            return True
    return False


def _asks(rule: EventRule) -> tuple[str, frozenset[str], str]:
    return rule.topic, frozenset(rule.event_types), rule.repository_prefix
