"""What notifications need of other parts of the platform; the composition root provides it."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import EmailMessage
from typing import NamedTuple, Protocol

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, NotFound


class QueueScope(NamedTuple):
    """The account and region in which queues are looked for."""

    account_id: str
    region: str


class QueueRef(NamedTuple):
    """A queue."""

    id: str
    crn: str


class Queues(Protocol):
    """The queues of accounts."""

    def resolve(self, tx: Connection, scope: QueueScope, reference: str) -> QueueRef:
        """Return the queue of a name, an id or a CRN.

        Raises:
            InvalidInput: it is none of these, or of another account or region.
            NotFound: there is no such queue.

        """
        ...

    def send(
        self, tx: Connection, queue: QueueRef, body: str, attributes: Mapping[str, str], now: int
    ) -> None:
        """Send a message to a queue, in this transaction.

        Raises:
            NotFound: there is no such queue.
            InvalidInput: the message is larger than queues take.
            QuotaExceeded: the queue is full.

        """
        ...


class NoQueues:
    """An install without queues."""

    def resolve(self, _tx: Connection, _scope: QueueScope, _reference: str) -> QueueRef:
        """Refuse the reference."""
        raise InvalidInput("this install has no queues", reason="not_available")

    def send(
        self,
        _tx: Connection,
        _queue: QueueRef,
        _body: str,
        _attributes: Mapping[str, str],
        _now: int,
    ) -> None:
        """Refuse the message."""
        raise NotFound("this install has no queues")


class MailRefused(Exception):
    """A message was not accepted; the text says why, without credentials."""

    def __init__(self, message: str, *, is_permanent: bool) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        """True if a retry would not help."""


class Mail(Protocol):
    """Sends mail."""

    @property
    def sender(self) -> str:
        """Return the address that messages are from."""
        ...

    async def send(self, message: EmailMessage) -> None:
        """Hand a message over for delivery.

        Raises:
            MailRefused

        """
        ...
