"""What a queue is."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, field

from cloudcore.resources.record import Record, Reference, fixed, given, own
from cloudcore.resources.resource import Filter, Resource

Delay = Annotated[int, Meta(ge=0, le=900)]
LeaseSeconds = Annotated[int, Meta(ge=1, le=43_200)]


class Queue(Record, frozen=True, kw_only=True):
    """A queue."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=63),
        fixed("1 to 63 of a-z 0-9 . _ -; fixed", heading="NAME"),
    ]
    description: Annotated[str, Meta(max_length=1000), given('for persons; "" takes it away')] = ""
    retention_seconds: Annotated[
        int,
        Meta(ge=60, le=1_209_600),
        given(
            "seconds until a message that nobody acknowledges is deleted",
            heading="RETENTION",
            form="duration",
        ),
    ] = 345_600
    """Seconds after which a message is deleted that nobody has acknowledged; 4 days."""
    lease_seconds: Annotated[
        LeaseSeconds,
        given("seconds of a lease that says none itself", heading="LEASE", form="duration"),
    ] = 30
    """Seconds of a lease that says none itself."""
    delay_seconds: Annotated[Delay, given("seconds until a new message can be leased")] = 0
    """Seconds until a new message can be leased; a change holds for messages sent from then on."""
    tags: Annotated[dict[str, str], given("a tag of the queue")] = field(default_factory=dict)
    dead_letter_queue: Annotated[Reference | None, own(hidden=True)] = None
    max_leases: Annotated[int | None, own(hidden=True)] = None
    purged_through: Annotated[int, own(hidden=True)] = 0
    """The position of the last message that was purged; 0 if none was."""

    @property
    def crn(self) -> str:
        """Return its CRN."""
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
    told=("create", "delete"),
    keeps_deleted=True,
)
