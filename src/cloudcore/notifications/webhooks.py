"""Post to webhooks, in the form of Standard Webhooks; where they are is vetted each time."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.keyring import Keyring
from cloudcore.notifications.outcomes import DELIVERED, Outcome
from cloudcore.notifications.records import Publication
from cloudcore.notifications.signing import secrets_of, signature
from cloudcore.notifications.subscription import Subscription
from cloudcore.outbound.answer_parser import Head
from cloudcore.outbound.destinations import NotAllowed
from cloudcore.outbound.failures import RequestFailed
from cloudcore.outbound.http_client import HttpClient

_TOO_MANY: Final = 429
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"


class Webhooks(NamedTuple):
    """Posts to webhooks."""

    client: HttpClient
    keyring: Keyring

    async def post(
        self,
        subscription: Subscription,
        envelope: Mapping[str, Any],
        raw: Publication | None,
        now: int,
    ) -> Outcome:
        """Post an envelope, or the message of `raw`, once; of the answer only the head is read."""
        body = msgspec.json.encode(envelope) if raw is None else raw.message.encode()
        message_id, timestamp = envelope["message_id"], now // MICROSECONDS
        secrets = secrets_of(self.keyring, subscription, now)
        headers = {
            "Content-Type": _JSON if raw is None else raw.content_type or _TEXT,
            "User-Agent": "Entrepot-Notifications",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(secrets, message_id, timestamp, body),
        }
        try:
            async with self.client.request("POST", subscription.endpoint, headers, body) as answer:
                return _outcome(answer.head, now)
        except NotAllowed as error:
            return Outcome("failed", "DESTINATION_REFUSED", str(error))
        except RequestFailed as error:
            return Outcome("retry", "ENDPOINT_UNREACHABLE", str(error))


def _outcome(head: Head, now: int) -> Outcome:
    status = head.status
    if 200 <= status < 300:
        return DELIVERED
    words = f"it answered {status}"
    if status == _TOO_MANY or status >= 500:
        return Outcome(
            "retry", "ENDPOINT_FAILED", words, _retry_after(head.get("retry-after"), now), status
        )
    return Outcome("failed", "ENDPOINT_REFUSED", words, http_status=status)


def _retry_after(text: str | None, now: int) -> int:
    """Return the seconds of a ``Retry-After`` (RFC 9110 §10.2.3); 0 if it says none."""
    if text is None:
        return 0
    if text.isascii() and text.isdigit():
        return int(text[:9])
    try:
        return max(0, int(parsedate_to_datetime(text).timestamp()) - now // MICROSECONDS)
    except (ValueError, OverflowError):
        return 0
