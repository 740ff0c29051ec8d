"""The dependencies of notifications, and the ports that they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.events import EVENTS, Events
from cloudcore.keyring import Keyring
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from cloudcore.outbound.mail_transfer import PlatformMail
from cloudcore.ports import KEYRING, Opening, Port
from cloudcore.quotas.quota_checks import QuotaChecks
from cloudcore.resource_references import Authorize


class QueueRef(Protocol):
    """A queue, by its id and its CRN."""

    @property
    def id(self) -> str:
        """Return the queue's id."""

    @property
    def crn(self) -> str:
        """Return the queue's CRN."""


class Queues(Protocol):
    """Finds queues of accounts, and sends messages to them."""

    def resolve(
        self,
        tx: Connection,
        account_id: str,
        reference: str,
        authorize: Authorize | None,
        *,
        field: str = ...,
    ) -> QueueRef:
        """Return the queue of an account that a name, an id or a CRN refers to.

        `authorize` raises unless the caller may use the queue; None means that the platform itself
        is the caller.

        Raises:
            InvalidInput: the reference is malformed, or of another account or region; the error
                names `field`.
            AccessDenied: `authorize` refused.
            NotFound: there is no such queue.

        """

    def send(
        self,
        tx: Connection,
        account_id: str,
        queue_id: str,
        body: str,
        attributes: Mapping[str, str],
    ) -> str:
        """Send a message to a queue when `tx` commits; return the message's id.

        Raises:
            NotFound: there is no such queue.
            InvalidInput: the message is larger than queues accept.
            QuotaExceeded: the queue is full.

        """


QUEUES: Final[Port[Queues]] = Port("notifications.queues")
MAIL: Final[Port[PlatformMail | None]] = Port("notifications.mail")
WEBHOOKS: Final[Port[Allowed]] = Port("notifications.webhooks")
"""Which destinations webhooks may have besides the public internet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationNeeds:
    """The dependencies of the routes and the jobs of notifications."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    keyring: Keyring
    region: str
    url: str
    """Base URL in the links that recipients get."""
    client: HttpClient
    """Posts to webhooks."""
    queues: Queues
    events: Events
    """Finds the topics that rules name."""
    mail: PlatformMail | None = None
    """Sends mail; None if the install sends none, so that nobody can subscribe by mail."""
    room: QuotaChecks = field(default_factory=QuotaChecks)
    """Accounts that had room for more waiting messages when they were last checked."""


async def open_needs(opening: Opening) -> NotificationNeeds:
    """Return what the notifications family needs in this process."""
    install = opening.install
    # Each POST uses a new connection; idle ones would only use up descriptors.
    client = HttpClient(await opening.get(WEBHOOKS), max_idle=0)
    opening.resources.callback(client.close)
    return NotificationNeeds(
        database=install.database,
        clock=install.clock,
        new_id=install.new_id,
        keyring=await opening.get(KEYRING),
        region=install.region,
        url=install.url_of("notifications"),
        client=client,
        queues=await opening.get(QUEUES),
        events=await opening.get(EVENTS),
        mail=await opening.get(MAIL),
    )
