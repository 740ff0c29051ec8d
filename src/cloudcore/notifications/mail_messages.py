"""The e-mails to subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from cloudcore.notifications.subscription import Subscription

if TYPE_CHECKING:
    from email.headerregistry import BaseHeader
    from email.policy import EmailPolicy, Policy

_SUBJECT: Final = 150
_REASON: Final = "You get this because {address} is subscribed to {topic}.\nTo end it: {url}\n"


def mail_of(envelope: Mapping[str, Any], subscription: Subscription, sender: str) -> EmailMessage:
    """Return the e-mail of an envelope: text for the reader, and the envelope as an attachment."""
    is_request = envelope["type"] == "subscription_confirmation"
    topic, url = envelope["topic_name"], envelope["unsubscribe_url"]
    subject = envelope["subject"] or f"Notification from {topic}"
    mail = EmailMessage(policy=_policy())
    mail["From"] = sender
    mail["To"] = subscription.endpoint
    mail["Subject"] = (
        f"Confirm your subscription to {topic}" if is_request else _as_it_is(subject[:_SUBJECT])
    )
    mail["Date"] = format_datetime(datetime.fromisoformat(envelope["timestamp"]))
    domain = sender.rpartition("@")[2].rstrip(">") or "localhost"
    mail["Message-ID"] = f"<{envelope['message_id']}.{subscription.id}@{domain}>"
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


@cache
def _policy() -> EmailPolicy[EmailMessage]:
    """Return the form of mails: that of SMTP, with the address of an unsubscription in one piece.

    The library would fold it into encoded words, which are no part of it (RFC 2369 §2).
    """
    from email.headerregistry import HeaderRegistry, UniqueUnstructuredHeader  # noqa: PLC0415
    from email.policy import SMTP  # noqa: PLC0415 - 0.6 MiB, and few installs send mail

    class OneLine(UniqueUnstructuredHeader):
        def fold(self, *, policy: Policy) -> str:
            return f"List-Unsubscribe: {self}{policy.linesep}"

    headers = HeaderRegistry()
    headers.map_to_type("list-unsubscribe", cast("type[BaseHeader]", OneLine))
    return SMTP.clone(header_factory=headers)


def _as_it_is(subject: str) -> str:
    """Return a subject in which the mail library finds no encoded word (RFC 2047).

    It would decode one, and write what that holds, line breaks too, into the head of the mail.
    """
    return subject.replace("=?", "= ?")
