"""What families ask of that which sends the platform's own mail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from email.message import EmailMessage


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
        """Hand a message over for delivery; raise `MailRefused`."""
        ...
