"""The links by which recipients end the mail of an account (RFC 8058).

The token of a link has all that is needed, since links are opened long after the message is no
longer kept.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

import msgspec

from cloudcore.keyring import Keyring

PATH: Final = "/v1/email-unsubscriptions"
_MAC_BYTES: Final = 16


class Unsubscription(msgspec.Struct, array_like=True, frozen=True):
    """Who gets no more mail of whom."""

    account_id: str
    region: str
    message_id: str
    """Whose link it is."""
    address: str
    """Its domain in ASCII."""


def unsubscribe_headers(keyring: Keyring, url: str, of: Unsubscription) -> Mapping[str, str]:
    """Return the headers of a message to one recipient; `url` is the platform's base.

    They must be signed with the message, and the first must not be folded into encoded words.
    """
    query = urlencode({"token": unsubscribe_token(keyring, of)})
    return {
        "List-Unsubscribe": f"<{url}{PATH}?{query}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def unsubscribe_token(keyring: Keyring, of: Unsubscription) -> str:
    """Return the token of a link."""
    said = msgspec.json.encode(of)
    return urlsafe_b64encode(_mac(keyring, said) + said).decode().rstrip("=")


def read_unsubscribe_token(keyring: Keyring, token: str) -> Unsubscription | None:
    """Return who gets no more mail of whom, or None if the token is not ours."""
    with suppress(ValueError):  # no base64, or not of ASCII
        read = urlsafe_b64decode(f"{token}{'=' * (-len(token) % 4)}")
        mac, said = read[:_MAC_BYTES], read[_MAC_BYTES:]
        if hmac.compare_digest(mac, _mac(keyring, said)):
            return msgspec.json.decode(said, type=Unsubscription)
    return None


def _mac(keyring: Keyring, said: bytes) -> bytes:
    key = keyring.derive("email unsubscribe link")
    return hmac.digest(key, said, "sha256")[:_MAC_BYTES]
