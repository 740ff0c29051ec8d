"""Requests to confirm a resource by a link that is sent to its address or endpoint.

The token of a link is derived from the root key and a nonce; each new request has a new nonce. Only
the token's hash is stored. Requests are limited, as the recipient may be a stranger.
"""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from typing import Any, Final

from cloudcore import base64url
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, TooManyConfirmations
from cloudcore.keyring import Keyring
from cloudcore.web.rate_limits import Budget, count_request

CONFIRMATION_SECONDS: Final = 72 * 3600
"""How long a request to confirm is valid."""
OF_RECIPIENT: Final = Budget(limit=10, window_seconds=3600, is_extended=False)
"""Requests to confirm that one recipient gets from all accounts together."""
OF_ACCOUNT: Final = Budget(limit=300, window_seconds=3600, is_extended=False)
"""Requests to confirm that all recipients together get from one account."""
CONFIRMED: Final = {
    "confirmation_nonce": None,
    "confirmation_hash": None,
    "confirmation_expires_at": None,
}
"""The fields of a record that waits for no confirmation."""


class BadToken(InvalidInput):
    """The token is unknown, expired or superseded; callers cannot tell which."""

    def __init__(self, noun: str) -> None:
        super().__init__(
            f"the token confirms no {noun}: it is unknown, expired, used, or there is a newer one",
            field="token",
            reason="unknown",
        )


def unconfirmed(keyring: Keyring, service: str, resource_id: str, now: int) -> dict[str, Any]:
    """Return the fields of a record that waits to be confirmed by a new token."""
    nonce = base64url.encode(os.urandom(24))
    return {
        "confirmation_nonce": nonce,
        "confirmation_hash": token_hash(token_of(keyring, service, resource_id, nonce)),
        "confirmation_expires_at": now + CONFIRMATION_SECONDS * MICROSECONDS,
    }


def token_of(keyring: Keyring, service: str, resource_id: str, nonce: str) -> str:
    """Return the token that confirms a resource of a service."""
    key = keyring.derive(f"{service} confirmation token")
    return base64url.encode(hmac.digest(key, f"{resource_id} {nonce}".encode(), "sha256"))


def token_hash(token: str) -> bytes:
    """Return the hash of a token, as it is stored."""
    return sha256(token.encode()).digest()


def count_confirmation(
    tx: Connection, service: str, kind: str, recipient: str, account_id: str, now: int
) -> None:
    """Count a request to confirm against the limits of its recipient and of the account.

    `kind` is ``address`` or ``endpoint``. The tag and the case of a mail address, and the query of
    a URL, do not matter. Raise `TooManyConfirmations` if the recipient, or all recipients of the
    account together, got too many requests.
    """
    if "://" in recipient:
        common = recipient.partition("?")[0]
    else:
        local, _, domain = recipient.rpartition("@")
        common = f"{local.partition('+')[0]}@{domain}".lower()
    subjects = (
        (f"{service} {kind}", sha256(common.encode()).hexdigest(), OF_RECIPIENT),
        (f"{service} account", account_id, OF_ACCOUNT),
    )
    for name, subject, budget in subjects:
        status = count_request(tx, name, subject, budget, now)
        if status.is_refused:
            raise TooManyConfirmations(
                f"too many requests to confirm: at most {OF_RECIPIENT.limit} an hour to an {kind},"
                f" and {OF_ACCOUNT.limit} of an account",
                retry_after=status.reset,
            )
