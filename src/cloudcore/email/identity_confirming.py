"""Confirm an address by the link of a mail, which is sent there.

The token of the link is derived from the root key and a nonce, which each new mail changes; only
its hash is stored.
"""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64encode
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode

from msgspec import structs

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.email.identity_rows import ROWS, lock_confirmed_by
from cloudcore.email.sending_identity import SendingIdentity
from cloudcore.errors import InvalidInput, TooManyConfirmations
from cloudcore.keyring import Keyring
from cloudcore.web.ratelimit import Budget, count_request

CONFIRM_PATH: Final = "/v1/identity-confirmations"
CONFIRMATION_SECONDS: Final = 72 * 3600
"""Seconds for which a link confirms."""
_HOUR: Final = 3600
OF_ADDRESS: Final = Budget(limit=10, window_seconds=_HOUR, is_extended=False)
"""Mails to an address, of all accounts together."""
OF_ACCOUNT: Final = Budget(limit=300, window_seconds=_HOUR, is_extended=False)
"""Mails of an account to all addresses."""


class BadToken(InvalidInput):
    """The token confirms nothing: unknown, expired or superseded, which is not told."""

    def __init__(self) -> None:
        super().__init__(
            "the token confirms no address: it is unknown, expired, used, or there is a newer one",
            field="token",
            reason="unknown",
        )


def waiting(identity: SendingIdentity, keyring: Keyring, now: int) -> SendingIdentity:
    """Return an address that waits for its confirmation by a new token."""
    nonce = urlsafe_b64encode(os.urandom(24)).decode()
    return structs.replace(
        identity,
        confirmation_nonce=nonce,
        confirmation_hash=_hash(_token(keyring, identity.id, nonce)),
        confirmation_expires_at=now + CONFIRMATION_SECONDS * MICROSECONDS,
        check_at=now,
    )


def count_mail(tx: Connection, identity: SendingIdentity, now: int) -> None:
    """Count a mail that asks for a confirmation: addresses may be of strangers.

    Raise `TooManyConfirmations` if the address, or others of the account, were asked too often.
    """
    local, _, domain = identity.value.rpartition("@")
    address = sha256(f"{local.partition('+')[0]}@{domain}".encode()).hexdigest()
    subjects = (
        ("email address", address, OF_ADDRESS),
        ("email account", identity.account_id, OF_ACCOUNT),
    )
    for name, subject, budget in subjects:
        status = count_request(tx, name, subject, budget, now)
        if status.is_refused:
            raise TooManyConfirmations(
                f"too many requests to confirm: at most {OF_ADDRESS.limit} an hour to an address,"
                f" and {OF_ACCOUNT.limit} of an account",
                retry_after=status.reset,
            )


def confirm(tx: Connection, token: str, now: int) -> SendingIdentity:
    """Verify the address that a token confirms; raise `BadToken` if it confirms none."""
    found = lock_confirmed_by(tx, _hash(token))
    if found is None or (found.confirmation_expires_at or 0) <= now:
        raise BadToken
    return ROWS.save(
        tx,
        structs.replace(
            found,
            status="verified",
            verified_at=now,
            confirmation_nonce=None,
            confirmation_hash=None,
            confirmation_expires_at=None,
            check_at=None,
            faults=(),
            updated_at=now,
        ),
    )


def mail_of(
    identity: SendingIdentity, account: str, keyring: Keyring, url: str, sender: str
) -> EmailMessage:
    """Return the mail with the link; `account` is who wants to send, `url` the platform's base."""
    assert identity.confirmation_nonce is not None
    query = urlencode({"token": _token(keyring, identity.id, identity.confirmation_nonce)})
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = Address(addr_spec=identity.value)
    mail["Subject"] = "Confirm your address"
    domain = sender.rpartition("@")[2].rstrip(">") or "localhost"
    mail["Message-ID"] = f"<{identity.id}.{identity.asked}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(
        f"The account {account} of {url} wants to send mail from\n{identity.value}.\n\n"
        f"To allow that, open this page within 72 hours:\n{url}{CONFIRM_PATH}?{query}\n\n"
        "If you do not know what this is, do nothing.\n"
    )
    return mail


def _token(keyring: Keyring, identity_id: str, nonce: str) -> str:
    key = keyring.derive("email confirmation token")
    mac = hmac.digest(key, f"{identity_id} {nonce}".encode(), "sha256")
    return urlsafe_b64encode(mac).rstrip(b"=").decode()


def _hash(token: str) -> bytes:
    return sha256(token.encode()).digest()
