"""The messages to endpoints: envelopes, signatures of webhooks, and links with tokens.

Signatures are those of Standard Webhooks (``webhook-signature: v1,…``). A signing secret is sealed
in its subscription's row. The unsubscribe token is derived from the root key, with the ids of
account and subscription.
"""

from __future__ import annotations

import hmac
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from cloudcore import base64url
from cloudcore.keyring import Keyring
from cloudcore.notifications.topic import TOPIC, Publication, Subscription, Topic
from cloudcore.resource_names import UUID_PATTERN, parse_uuid
from cloudcore.resources.confirmations import token_of
from cloudcore.wire import rfc3339

PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = 32
_UNSUBSCRIBE: Final = re.compile(rf"({UUID_PATTERN})\.({UUID_PATTERN})\.([A-Za-z0-9_-]{{43}})")


def new_secret() -> str:
    """Return a new random signing secret."""
    return PREFIX + b64encode(os.urandom(_SECRET_BYTES)).decode()


def seal_secret(keyring: Keyring, subscription_id: str, secret: str) -> bytes:
    """Return the signing secret of a subscription in sealed form, which `open_secret` opens."""
    return keyring.seal(secret.encode(), _context(subscription_id))


def open_secret(keyring: Keyring, subscription_id: str, sealed: bytes) -> str:
    """Return the signing secret of a subscription from its sealed form."""
    return keyring.open(sealed, _context(subscription_id)).decode()


def secrets_of(keyring: Keyring, subscription: Subscription, now: int) -> list[str]:
    """Return the secrets that sign at `now`: the current and perhaps the previous one."""
    sealed = [subscription.signing_secret]
    if subscription.previous_until is not None and now < subscription.previous_until:
        sealed.append(subscription.previous_secret)
    return [open_secret(keyring, subscription.id, each) for each in sealed if each is not None]


def signature(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``: one signature per secret.

    `timestamp` is in seconds since the epoch.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    keys = (b64decode(secret.removeprefix(PREFIX)) for secret in secrets)
    macs = (hmac.digest(key, signed, "sha256") for key in keys)
    return " ".join(f"v1,{b64encode(mac).decode()}" for mac in macs)


def unsubscribe_token(keyring: Keyring, account_id: str, subscription_id: str) -> str:
    """Return the token that ends a subscription, valid as long as the subscription exists."""
    key = keyring.derive("notifications unsubscribe token")
    mac = hmac.digest(key, f"{account_id} {subscription_id}".encode(), "sha256")
    return f"{account_id}.{subscription_id}.{base64url.encode(mac)}"


def read_unsubscribe_token(keyring: Keyring, token: str) -> tuple[str, str] | None:
    """Return (account id, subscription id) in a token, or None if the token is not ours."""
    found = _UNSUBSCRIBE.fullmatch(token)
    if found is None:
        return None
    account_id, subscription_id = parse_uuid(found[1]), parse_uuid(found[2])
    assert account_id is not None
    assert subscription_id is not None
    ours = unsubscribe_token(keyring, account_id, subscription_id)
    return (account_id, subscription_id) if hmac.compare_digest(ours, token) else None


def _context(subscription_id: str) -> str:
    return f"notifications signing secret {subscription_id}"


CONFIRM_PATH = "/v1/subscription-confirmations/page"
UNSUBSCRIBE_PATH = "/v1/unsubscriptions"


class RecipientLinks(NamedTuple):
    """Makes the links in messages to recipients."""

    keyring: Keyring
    url: str
    """Base URL at which clients reach the platform."""

    def token(self, subscription: Subscription) -> str:
        """Return the token that confirms a pending subscription."""
        assert subscription.confirmation_nonce is not None
        nonce = subscription.confirmation_nonce
        return token_of(self.keyring, TOPIC.service, subscription.id, nonce)

    def confirmation(self, token: str) -> str:
        """Return the link to the page that confirms a subscription."""
        return f"{self.url}{CONFIRM_PATH}?{urlencode({'token': token})}"

    def unsubscribe(self, subscription: Subscription) -> str:
        """Return the link that ends a subscription by one POST (RFC 8058)."""
        token = unsubscribe_token(self.keyring, subscription.account_id, subscription.id)
        return f"{self.url}{UNSUBSCRIBE_PATH}?{urlencode({'token': token})}"


def notification(
    topic: Topic, subscription: Subscription, publication: Publication, links: RecipientLinks
) -> dict[str, Any]:
    """Return the envelope for a publication, which is the same in every attempt."""
    return {
        "type": "notification",
        "message_id": publication.id,
        "topic_crn": topic.crn,
        "topic_name": topic.name,
        "subject": publication.subject,
        "message": publication.message,
        "attributes": publication.attributes,
        "timestamp": rfc3339(publication.published_at),
        "subscription_id": subscription.id,
        "unsubscribe_url": links.unsubscribe(subscription),
    }


def confirmation(
    topic: Topic,
    subscription: Subscription,
    message_id: str,
    requested_at: int,
    links: RecipientLinks,
) -> dict[str, Any]:
    """Return the envelope for a request to confirm a subscription."""
    token = links.token(subscription)
    url = links.confirmation(token)
    request = Publication(
        id=message_id,
        topic_id=topic.id,
        account_id=topic.account_id,
        subject=None,
        message=f"To be sent what is published to {topic.name}, open {url}",
        attributes={},
        published_at=requested_at,
    )
    return {
        **notification(topic, subscription, request, links),
        "type": "subscription_confirmation",
        "token": token,
        "confirmation_url": url,
    }
