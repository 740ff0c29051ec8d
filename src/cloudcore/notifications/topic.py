"""What a topic is."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, field

from cloudcore.notifications.records import Settings
from cloudcore.notifications.rules import check_topic_name
from cloudcore.resources.record import Record, fixed, given, own
from cloudcore.resources.resource import Filter, Resource


class Topic(Record, frozen=True, kw_only=True):
    """A topic."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=256),
        fixed("1 to 256 of a-z A-Z 0-9 . _ -; fixed", heading="NAME"),
    ]
    description: Annotated[
        str,
        Meta(max_length=1000),
        given('for persons; "" takes it away', heading="DESCRIPTION"),
    ] = ""
    tags: Annotated[dict[str, str], given("a tag of the topic")] = field(default_factory=dict)
    delivery_policy: Annotated[Settings, own(hidden=True)] = field(default_factory=dict)
    """The settings that hold for its subscriptions, unless they say otherwise; it may be empty."""

    @property
    def crn(self) -> str:
        """Return its CRN."""
        return TOPIC.crn_of(self)


TOPIC: Final = Resource(
    record=Topic,
    service="notifications",
    one="topic",
    many="topics",
    check_key=check_topic_name,
    filters=(Filter("name"),),
    methods=("create", "list", "get", "update"),
    actions={"delete": "DeleteTopic"},
    more_actions=(
        "DeleteSubscription",
        "GetSigningSecret",
        "GetSubscription",
        "ListSubscriptions",
        "Publish",
        "ResendConfirmation",
        "RotateSigningSecret",
        "Subscribe",
        "UpdateSubscription",
    ),
    summaries={"notifications:Publish": "Publish to a topic; also to create an event rule for it."},
    told=("create", "delete"),
)
