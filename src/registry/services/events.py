"""Events of the registry: told to the topics whose rules ask for them, with the change itself.

A rule is matched in the transaction of the change, so an event is in the outbox if and only if
its change is, and an account without rules pays nothing.
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
    """Return what events tell of images, by id; nothing is read where no rule asks for any."""
    found = describe(tx, ids) if repository.has_event_rules else {}
    return dict.fromkeys(ids, Description()) | found


def publish(
    tx: Connection, act: Change, repository: Repository, events: Sequence[RegistryEvent]
) -> None:
    """Put into the outbox what the account's rules ask for of `events`.

    Make it a change's last act: until the change ends, others of the account may wait here.
    """
    if not events or not repository.has_event_rules:
        return
    found = find_rules(tx, repository.account_id)
    for event in events:
        topics = sorted({rule.topic for rule in found.rules if _asks(rule, event, repository)})
        if topics:
            data = _data(event, act, repository, found.handle)
            emit(tx, event.type, repository.account_id, {"topics": topics, "data": data}, act.now)


def _asks(rule: EventRule, event: RegistryEvent, repository: Repository) -> bool:
    """Say whether a rule asks for an event: by its exact type, or by what its type begins with."""
    return repository.name.startswith(rule.repository_prefix) and any(
        event.type.startswith(wanted[:-1]) if wanted.endswith("*") else event.type == wanted
        for wanted in rule.event_types
    )


def _data(
    event: RegistryEvent, act: Change, repository: Repository, handle: str
) -> dict[str, object]:
    """Return what subscribers are told (C3)."""
    crn = repository_crn(act.site.region, repository.account_id, repository.name)
    return {
        "repository": {"id": repository.id, "crn": crn, "name": repository.name},
        "uri": f"{act.site.pull_host}/{handle}/{repository.name}",
        "digest": _plain(event.digest),
        "tag": event.tag,
        "media_type": event.media_type,
        "artifact_type": event.artifact_type,
        "subject": _plain(event.subject),
        "principal": act.principal or None,
        "occurred_at": rfc3339(act.now),
    }


def _plain(digest: str | None) -> str | None:
    """Return a digest as a mere string: that of a class of its own is none to JSON."""
    return None if digest is None else str(digest)
