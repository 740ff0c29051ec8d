"""What certificates need of other parts of the platform; the composition root provides it."""

from __future__ import annotations

from typing import Protocol

from cloudcore.certificate.certificate import Certificate
from cloudcore.db.base import Connection


class AccountKeys(Protocol):
    """Seals short secrets of accounts under their KMS keys.

    Both methods raise a `PlatformError` if the key cannot be used: it was disabled or deleted, or
    the provider of its material does not answer.
    """

    async def seal(self, account_id: str, secret: bytes, context: str) -> tuple[str, bytes]:
        """Return the id of the account's platform key, and a secret sealed under it."""
        ...

    async def open(self, account_id: str, kms_key_id: str, sealed: bytes, context: str) -> bytes:
        """Return a secret that was sealed for the same `context`."""
        ...


class Events(Protocol):
    """Tells the topics of an account what happens to its certificates."""

    def publish(self, tx: Connection, certificate: Certificate, event_type: str, now: int) -> None:
        """Publish an event when `tx` commits; call it last in a change."""
        ...
