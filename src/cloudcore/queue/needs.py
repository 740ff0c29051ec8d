"""The dependencies of queues, and the port through which other families send messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.ports import Opening, Port, offer
from cloudcore.queue.long_polling import Consumers
from cloudcore.queue.messages import NewMessage, send_messages
from cloudcore.queue.queue import Queue, check_message
from cloudcore.queue.queues import ROWS
from cloudcore.quotas.quota_checks import QuotaChecks
from cloudcore.resource_references import Authorize


@dataclass(frozen=True, slots=True)
class Queues:
    """Finds queues of this install, and sends messages to them in the caller's transaction."""

    region: str
    clock: Clock

    def resolve(
        self,
        tx: Connection,
        account_id: str,
        reference: str,
        authorize: Authorize | None,
        *,
        field: str = "queue",
    ) -> Queue:
        """Return the queue of an account; `reference` is an id, a name or a CRN.

        `authorize` raises unless the caller may use the queue; None if the platform itself is the
        caller.

        Raises:
            InvalidInput: `reference` is malformed, or a CRN of another region or account; the error
                names `field`.
            AccessDenied: `authorize` refused.
            NotFound: there is no such queue.

        """
        return ROWS.resolve(tx, account_id, self.region, field, reference, authorize)

    def send(
        self,
        tx: Connection,
        account_id: str,
        queue_id: str,
        body: str,
        attributes: Mapping[str, str],
    ) -> str:
        """Send a message when `tx` commits, and wake consumers then; return the message's id.

        Raises:
            NotFound: the queue was deleted.
            InvalidInput: the message is too large, or its attributes are malformed.
            QuotaExceeded: the queue is full.

        """
        tx.announce()
        new = NewMessage(body, attributes, check_message("", body, attributes))
        (sent,) = send_messages(tx, account_id, queue_id, [new], self.clock(), checks_room=True)
        return sent.id


QUEUES: Final[Port[Queues]] = Port("queue.queues")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNeeds:
    """The dependencies of the routes and the timers of queues."""

    database: Database
    clock: Clock
    consumers: Consumers
    room: QuotaChecks

    @classmethod
    def of(cls, database: Database, clock: Clock) -> QueueNeeds:
        """Return the dependencies of one process, without consumers at first."""
        consumers = Consumers(database, clock)
        return cls(database=database, clock=clock, consumers=consumers, room=QuotaChecks())


async def open_needs(opening: Opening) -> QueueNeeds:
    """Return what the queue family needs in this process."""
    return QueueNeeds.of(opening.install.database, opening.install.clock)


async def _open_queues(opening: Opening) -> Queues:
    return Queues(opening.install.region, opening.install.clock)


OFFERS: Final = (offer(QUEUES, _open_queues),)
