"""Send to webhooks, as Standard Webhooks specifies, and by mail.

The address of a webhook is checked at every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any, Final

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.notifications.attempts import DELIVERED, AttemptOutcome
from cloudcore.notifications.envelope import secrets_of, signature
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.notifications.topic import Publication, Subscription
from cloudcore.outbound.destinations import NotAllowed
from cloudcore.outbound.http_connection import AnswerHead, RequestFailed
from cloudcore.outbound.mail_policy import message_id_of, policy_with_urls, without_encoded_words

_TOO_MANY: Final = 429
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"


async def post(
    needs: NotificationNeeds,
    subscription: Subscription,
    envelope: Mapping[str, Any],
    raw: Publication | None,
) -> AttemptOutcome:
    """Post an envelope to a webhook once, or `raw` instead, and return the outcome.

    `raw` is the message alone, or None. Only the head of the response is read.
    """
    now = needs.clock()
    body = msgspec.json.encode(envelope) if raw is None else raw.message.encode()
    message_id, timestamp = envelope["message_id"], now // MICROSECONDS
    secrets = secrets_of(needs.keyring, subscription, now)
    headers = {
        "Content-Type": _JSON if raw is None else raw.content_type or _TEXT,
        "User-Agent": "Entrepot-Notifications",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secrets, message_id, timestamp, body),
    }
    try:
        async with needs.client.request("POST", subscription.endpoint, headers, body) as answer:
            return _outcome(answer.head, now)
    except NotAllowed as error:
        return AttemptOutcome("failed", "DESTINATION_REFUSED", str(error))
    except RequestFailed as error:
        return AttemptOutcome("retry", "ENDPOINT_UNREACHABLE", str(error))


def _outcome(head: AnswerHead, now: int) -> AttemptOutcome:
    status = head.status
    if 200 <= status < 300:
        return DELIVERED
    words = f"it answered {status}"
    if status == _TOO_MANY or status >= 500:
        return AttemptOutcome("retry", "ENDPOINT_FAILED", words, head.retry_after(now) or 0, status)
    return AttemptOutcome("failed", "ENDPOINT_REFUSED", words, http_status=status)


_SUBJECT: Final = 150
_REASON: Final = "You get this because {address} is subscribed to {topic}.\nTo end it: {url}\n"


def mail_of(envelope: Mapping[str, Any], subscription: Subscription, sender: str) -> EmailMessage:
    """Return the e-mail for an envelope: text for the reader, and the envelope as an attachment."""
    is_request = envelope["type"] == "subscription_confirmation"
    topic, url = envelope["topic_name"], envelope["unsubscribe_url"]
    subject = envelope["subject"] or f"Notification from {topic}"
    mail = EmailMessage(policy=policy_with_urls("list-unsubscribe"))
    mail["From"] = sender
    mail["To"] = subscription.endpoint
    mail["Subject"] = (
        f"Confirm your subscription to {topic}"
        if is_request
        else without_encoded_words(subject[:_SUBJECT])
    )
    mail["Date"] = format_datetime(datetime.fromisoformat(envelope["timestamp"]))
    mail["Message-ID"] = message_id_of(f"{envelope['message_id']}.{subscription.id}", sender)
    mail["Auto-Submitted"] = "auto-generated"
    if is_request:
        text = (
            f"{subscription.endpoint} is to be sent what is published to {envelope['topic_crn']}."
            f"\n\nTo confirm, open this page within 72 hours:\n{envelope['confirmation_url']}\n\n"
            "If you do not know what this is, do nothing.\n"
        )
    else:
        mail["List-Unsubscribe"] = f"<{url}>"
        mail["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
        why = _REASON.format(address=subscription.endpoint, topic=topic, url=url)
        text = f"{envelope['message']}\n\n-- \n{why}"
    mail.set_content(text)
    mail.add_attachment(
        msgspec.json.encode(envelope),
        maintype="application",
        subtype="json",
        filename="notification.json",
    )
    return mail
