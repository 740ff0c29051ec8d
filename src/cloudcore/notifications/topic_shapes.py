"""The bodies of ``/v1/topics``: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from cloudcore.notifications.delivery_policy import DeliveryPolicy
from cloudcore.notifications.records import Topic
from cloudcore.uuids import Uuid
from cloudcore.web.pagination import PageMeta
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

TopicName = Annotated[str, Meta(min_length=1, max_length=256)]
Description = Annotated[str, Meta(max_length=1000)]
_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_QUOTED: Final = r'"[ !#-\[\]-~]*"'
ContentType = Annotated[
    str,
    Meta(
        max_length=256,
        pattern=rf"^{_WORD}/{_WORD}(?: *; *{_WORD}=(?:{_WORD}|{_QUOTED}))*$(?!\n)",
    ),
]
"""A media type with parameters (RFC 9110 §8.3.1)."""


class CreateTopic(RequestBody):
    """A new topic; its name is fixed."""

    name: TopicName
    description: Description = ""
    delivery_policy: DeliveryPolicy | None = None
    """How failed deliveries to its subscriptions are retried, unless they say otherwise."""
    tags: dict[str, str] = field(default_factory=dict)


class UpdateTopic(RequestBody):
    """The fields to change; `tags` and `delivery_policy` are replaced whole."""

    description: Description | UnsetType = UNSET
    delivery_policy: DeliveryPolicy | UnsetType | None = UNSET
    """Null: the platform's settings."""
    tags: dict[str, str] | UnsetType = UNSET


class Message(RequestBody):
    """A message to publish."""

    message: Annotated[str, Meta(min_length=1)]
    """As JSON, with subject and attributes, at most 245,760 bytes."""
    subject: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    """What filters look at; at most 20."""
    content_type: ContentType | None = None
    """Media type under which webhooks get it raw; `text/plain` if it has none."""


class Published(ResponseBody):
    """The message will be delivered."""

    message_id: Uuid


class TopicRecord(ResponseBody):
    """A topic."""

    id: Uuid
    crn: str
    name: str
    description: str
    delivery_policy: DeliveryPolicy | None
    """Only the fields that are set."""
    tags: dict[str, str]
    created_at: RFC3339
    updated_at: RFC3339


class OneTopic(ResponseBody):
    """A topic, wrapped."""

    topic: TopicRecord


class ManyTopics(ResponseBody):
    """A page of topics."""

    topics: Sequence[TopicRecord]
    meta: PageMeta


def topic_record(topic: Topic) -> TopicRecord:
    """Return the record of a topic."""
    return TopicRecord(
        id=topic.id,
        crn=topic.crn,
        name=topic.name,
        description=topic.description,
        delivery_policy=policy_record(topic.delivery_policy),
        tags=dict(topic.tags),
        created_at=rfc3339(topic.created_at),
        updated_at=rfc3339(topic.updated_at),
    )


def policy_record(stored: object) -> DeliveryPolicy | None:
    """Return a stored delivery policy, or None if no field is set."""
    return msgspec.convert(stored, DeliveryPolicy) if stored else None


def one_topic(topic: Topic) -> OneTopic:
    """Return the record of a topic, wrapped."""
    return OneTopic(topic=topic_record(topic))
