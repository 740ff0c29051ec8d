"""What is sent to endpoints: the envelope, and the links in it."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode

from cloudcore.keyring import Keyring
from cloudcore.notifications import signing
from cloudcore.notifications.topic import Publication, Subscription, Topic
from cloudcore.wire import rfc3339

CONFIRM_PATH = "/v1/subscription-confirmations/page"
UNSUBSCRIBE_PATH = "/v1/unsubscriptions"


class Links(NamedTuple):
    """Makes the links of recipients."""

    keyring: Keyring
    url: str
    """Base URL at which clients reach the platform."""

    def token(self, subscription: Subscription) -> str:
        """Return the token that confirms a subscription that is not confirmed."""
        assert subscription.confirmation_nonce is not None
        return signing.confirmation_token(
            self.keyring, subscription.id, subscription.confirmation_nonce
        )

    def confirmation(self, token: str) -> str:
        """Return the link to the page that confirms a subscription."""
        return f"{self.url}{CONFIRM_PATH}?{urlencode({'token': token})}"

    def unsubscribe(self, subscription: Subscription) -> str:
        """Return the link that ends a subscription by one POST (RFC 8058)."""
        token = signing.unsubscribe_token(self.keyring, subscription.account_id, subscription.id)
        return f"{self.url}{UNSUBSCRIBE_PATH}?{urlencode({'token': token})}"


def notification(
    topic: Topic, subscription: Subscription, publication: Publication, links: Links
) -> dict[str, Any]:
    """Return the envelope of a publication; it is the same for every attempt."""
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
    topic: Topic, subscription: Subscription, message_id: str, requested_at: int, links: Links
) -> dict[str, Any]:
    """Return the envelope of a request to confirm a subscription."""
    token = links.token(subscription)
    url = links.confirmation(token)
    return {
        "type": "subscription_confirmation",
        "message_id": message_id,
        "topic_crn": topic.crn,
        "topic_name": topic.name,
        "subject": None,
        "message": f"To be sent what is published to {topic.name}, open {url}",
        "attributes": {},
        "timestamp": rfc3339(requested_at),
        "subscription_id": subscription.id,
        "unsubscribe_url": links.unsubscribe(subscription),
        "token": token,
        "confirmation_url": url,
    }
