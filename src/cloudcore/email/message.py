"""What a message is: mail that was accepted for some recipients, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, get_args

from msgspec import field

from cloudcore.email.suppression import folded
from cloudcore.metering.sku import Sku
from cloudcore.resources.record import Record, own
from cloudcore.resources.resource import Filter, Resource

MessageStatus = Literal["queued", "deferred", "complained", "bounced", "sent", "suppressed"]
"""Of a message and of each recipient. A message has the first of these that a recipient has.

``queued``: not tried yet; ``deferred``: to be tried again; ``sent``: the recipient's mail server,
or the smarthost, has taken it; ``bounced``: refused, or given back later; ``complained``: sent, and
reported as unwanted; ``suppressed``: not sent, because the address was suppressed.
"""
STATUSES: Final[tuple[MessageStatus, ...]] = get_args(MessageStatus)
WAITING: Final = frozenset({"queued", "deferred"})
"""What is still to be sent."""
MESSAGES: Final = Sku("email.messages", "Messages, by recipient", "1000 messages", 1000)
RecipientKind = Literal["to", "cc", "bcc"]
MOST_RECIPIENTS: Final = 50
"""Of one message: to, cc and bcc together."""


class Message(Record, frozen=True, kw_only=True):
    """Mail that was accepted for some recipients, and what became of it."""

    sender: Annotated[str, own(hidden=True)]
    to: Annotated[list[str], own(heading="TO")] = field(default_factory=list)
    """As they were given, with names; those of `recipients` are addresses alone."""
    cc: Annotated[list[str], own()] = field(default_factory=list)
    bcc: Annotated[list[str], own()] = field(default_factory=list)
    """Who gets it too; the message itself does not tell."""
    subject: Annotated[str, own(heading="SUBJECT")]
    status: Annotated[MessageStatus, own(heading="STATUS")] = "queued"
    """The first of `queued`, `deferred`, `complained`, `bounced`, `sent` and `suppressed` that a
    recipient has."""
    identity: Annotated[str, own()]
    """The domain or address of the sending identity that it was accepted for."""
    identity_id: Annotated[str, own(hidden=True)]
    template_id: Annotated[str | None, own(hidden=True)] = None
    template_name: Annotated[str | None, own(hidden=True)] = None
    ended_at: Annotated[int | None, own(hidden=True, form="time")] = None
    """When no recipient waited any more: from then on the content is kept for a week and the rest
    for thirty days."""


def status_of(statuses: Iterable[str]) -> MessageStatus:
    """Return the status of a message whose recipients have these."""
    known = set(statuses)
    return next(each for each in STATUSES if each in known)


def _identity(named: str) -> str:
    """Return what an identity's domain, address, id or CRN is found by."""
    return named.rpartition("identity/")[2].lower()


MESSAGE: Final = Resource(
    record=Message,
    service="email",
    one="message",
    many="messages",
    table="email_messages",
    key="id",
    # One is accepted and shown by hand: its recipients and its content are rows of their own.
    methods=("list",),
    actions={"create": "SendMessage", "get": "GetMessage"},
    told=(),
    quota=100_000,
    filters=(
        Filter("status"),
        Filter("recipient", read=folded),
        Filter("identity", read=_identity),
    ),
)
"""The messages of accounts. At most so many of an account wait to be sent."""
