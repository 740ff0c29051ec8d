"""What notifications need of other parts of the platform; the composition root provides it."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import EmailMessage
from typing import Protocol

from cloudcore.db.base import Connection
from cloudcore.resource_references import Authorize


class QueueRef(Protocol):
    """A queue."""

    @property
    def id(self) -> str:
        """Return its id."""
        ...

    @property
    def crn(self) -> str:
        """Return its CRN."""
        ...


class Queues(Protocol):
    """The queues of accounts."""

    def resolve(
        self,
        tx: Connection,
        account_id: str,
        reference: str,
        authorize: Authorize | None,
        *,
        field: str = ...,
    ) -> QueueRef:
        """Return the queue of an account that a name, an id or a CRN means.

        `authorize` raises unless the caller may use it; None if the platform itself asks.

        Raises:
            InvalidInput: it is none of these, or of another account or region; `field` is named.
            AccessDenied: by `authorize`.
            NotFound: there is no such queue.

        """
        ...

    def send(
        self,
        tx: Connection,
        account_id: str,
        queue_id: str,
        body: str,
        attributes: Mapping[str, str],
    ) -> str:
        """Send a message to a queue when `tx` commits; return its id.

        Raises:
            NotFound: there is no such queue.
            InvalidInput: the message is larger than queues take.
            QuotaExceeded: the queue is full.

        """
        ...


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
