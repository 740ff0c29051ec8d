"""The record and the resource of queues, and the limits of their messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, field

from cloudcore.errors import NotFound, invalid_field
from cloudcore.quotas.quota import Quota
from cloudcore.resources.resource import (
    Description,
    Filter,
    Record,
    Reference,
    Resource,
    ResourceName,
    given,
    own,
)

QUEUE_MESSAGES: Final = Quota("queue_messages", 100_000, "messages of a queue", per="queue")
QUEUE_BYTES: Final = Quota(
    "queue_bytes", 1 << 30, "bytes of the messages of a queue", unit="bytes", per="queue"
)
MAX_MESSAGE_BYTES: Final = 256 * 1024
"""Maximum bytes of the body and the attributes of a message."""
MAX_BATCH: Final = 100
"""Maximum messages of one request."""
MAX_LEASED_BYTES: Final = 4 << 20
"""Maximum bytes of the messages that one request leases."""
MAX_ATTRIBUTES: Final = 20
"""The same maximum as for messages of topics, so that a subscribed queue gets all attributes."""
_ATTRIBUTE: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")


class QueueMissing(NotFound):
    """The queue does not exist, or belongs to another account."""

    def __init__(self) -> None:
        super().__init__("there is no such queue", reason="queue_not_found")


def check_message(field: str, body: str, attributes: Mapping[str, str]) -> int:
    """Return the size of a message in bytes.

    Raise `InvalidInput` if it is empty or too large, or an attribute is malformed.

    `field` is the path prefix for error messages: empty, or ``messages[3].``.
    """
    if not body:
        raise invalid_field(f"{field}body", "at least one character", "out_of_range")
    if len(attributes) > MAX_ATTRIBUTES:
        raise invalid_field(f"{field}attributes", f"at most {MAX_ATTRIBUTES}", "out_of_range")
    for name in attributes:
        if not _ATTRIBUTE.fullmatch(name):
            raise invalid_field(f"{field}attributes", "a name is 1 to 256 of A-Z a-z 0-9 _ . -")
    size = message_size(body, attributes)
    if size > MAX_MESSAGE_BYTES:
        raise invalid_field(
            f"{field}body",
            f"with the attributes at most {MAX_MESSAGE_BYTES} bytes of UTF-8, not {size}",
            "out_of_range",
        )
    return size


def message_size(body: str, attributes: Mapping[str, str]) -> int:
    """Return the size of a body and its attributes in UTF-8, in bytes."""
    texts = (body, *attributes, *attributes.values())
    return sum(len(each.encode()) for each in texts)


Delay = Annotated[int, Meta(ge=0, le=900)]
LeaseSeconds = Annotated[int, Meta(ge=1, le=43_200)]


class Queue(Record, frozen=True, kw_only=True):
    """A queue."""

    name: ResourceName
    description: Description = ""
    retention_seconds: Annotated[
        int,
        Meta(ge=60, le=1_209_600),
        given(
            "seconds until a message that nobody acknowledges is deleted",
            heading="RETENTION",
            form="duration",
        ),
    ] = 345_600
    """Seconds until a message that nobody acknowledges is deleted; 4 days by default."""
    lease_seconds: Annotated[
        LeaseSeconds,
        given("seconds of a lease that says none itself", heading="LEASE", form="duration"),
    ] = 30
    """Seconds of a lease if the request sets none."""
    delay_seconds: Annotated[Delay, given("seconds until a new message can be leased")] = 0
    """Seconds until a new message can be leased; a change applies to messages sent afterwards."""
    tags: Annotated[dict[str, str], given("a tag of the queue")] = field(default_factory=dict)
    dead_letter_queue: Annotated[Reference | None, own(hidden=True)] = None
    max_leases: Annotated[int | None, own(hidden=True)] = None
    purged_through: Annotated[int, own(hidden=True)] = 0
    """The position of the last purged message; 0 if none was purged."""

    @property
    def crn(self) -> str:
        """Return the queue's CRN."""
        return QUEUE.crn_of(self)


QUEUE: Final = Resource(
    record=Queue,
    service="queue",
    one="queue",
    many="queues",
    filters=(Filter("name"),),
    methods=("create", "list", "update", "delete"),
    actions={"get": "GetQueue"},
    more_actions=("AcknowledgeMessages", "LeaseMessages", "PurgeQueue", "SendMessage"),
    summaries={"queue:LeaseMessages": "Lease messages of a queue, and extend the leases."},
    methods_with_events=("create", "delete"),
    keeps_deleted=True,
)
