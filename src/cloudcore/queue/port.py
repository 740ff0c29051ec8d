"""What other families do with queues: resolve a reference, and send in their own transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cloudcore.clock import Clock
from cloudcore.db.base import Connection
from cloudcore.queue.messages import NewMessage, send_messages
from cloudcore.queue.queue import check_message
from cloudcore.queue.queues import ROWS
from cloudcore.resource_references import Authorize


class QueueRef(NamedTuple):
    """A queue that a reference means."""

    id: str
    crn: str
    name: str


class Queues:
    """The queues of this install."""

    def __init__(self, region: str, clock: Clock) -> None:
        self._region = region
        self._clock = clock

    def resolve(
        self,
        tx: Connection,
        account_id: str,
        reference: str,
        authorize: Authorize | None,
        *,
        field: str = "queue",
    ) -> QueueRef:
        """Return the queue of an account that an id, a name or a CRN means.

        `authorize` raises unless the caller may use it; None if the platform itself asks.

        Raises:
            InvalidInput: it is none of them, or the CRN is of another region or account; `field` is
                named.
            AccessDenied: by `authorize`.
            NotFound: there is no such queue.

        """
        found = ROWS.resolve(tx, account_id, self._region, field, reference, authorize)
        return QueueRef(found.id, found.crn, found.name)

    def send(
        self,
        tx: Connection,
        account_id: str,
        queue_id: str,
        body: str,
        attributes: Mapping[str, str],
    ) -> str:
        """Send a message when `tx` commits; return its id. Consumers that wait are woken then.

        Raises:
            NotFound: the queue was deleted.
            InvalidInput: the message is too large, or its attributes are malformed.
            QuotaExceeded: the queue is full.

        """
        tx.announce()
        new = NewMessage(body, attributes, check_message("", body, attributes))
        (sent,) = send_messages(tx, account_id, queue_id, [new], self._clock(), checks_room=True)
        return sent.id
