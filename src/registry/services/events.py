"""Publish events of the registry to the topics whose rules match, in the change's transaction.

So an event is in the outbox if and only if its change is committed. An account without rules has no
extra cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.jobs.outbox import emit
from cloudcore.wire import rfc3339
from registry.metadata.event_rules import EventRule, find_rules
from registry.metadata.images.manifests import Description, describe
from registry.metadata.repositories.live import Repository
from registry.services.access import repository_crn
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
    """Return descriptions of images for events, by id; empty ones if the account has no rules."""
    found = describe(tx, ids) if repository.has_event_rules else {}
    return dict.fromkeys(ids, Description()) | found


def publish(
    tx: Connection, change: Change, repository: Repository, events: Sequence[RegistryEvent]
) -> None:
    """Put those of `events` that a rule of the account matches into the outbox.

    Call it last in a transaction: until that ends, other transactions of the account may wait here.
    """
    if not events or not repository.has_event_rules:
        return
    found = find_rules(tx, repository.account_id)
    for event in events:
        topics = sorted({rule.topic for rule in found.rules if _asks(rule, event, repository)})
        if topics:
            data = _data(event, change, repository, found.handle)
            emit(
                tx, event.type, repository.account_id, {"topics": topics, "data": data}, change.now
            )


def _asks(rule: EventRule, event: RegistryEvent, repository: Repository) -> bool:
    """Return True if a rule matches an event's repository, and its type exactly or by a ``*``."""
    is_of_repository = repository.name.startswith(rule.repository_prefix)
    return is_of_repository and is_asked_for(event.type, rule.event_types)


def topics_asking(tx: Connection, account_id: str, event_type: str) -> Sequence[str]:
    """Return the topics that an account's rules tell events of another family (`TopicsOf`).

    A rule for some repositories asks for nothing else.
    """
    return sorted(
        {
            rule.topic
            for rule in find_rules(tx, account_id).rules
            if not rule.repository_prefix and is_asked_for(event_type, rule.event_types)
        }
    )


def is_asked_for(event_type: str, event_types: Sequence[str]) -> bool:
    """Return True if types of events have this one, exactly or by a ``*``."""
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
