"""Bodies of answers about messages, and the sealed content of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from cloudcore.email.messages.mime import Content
from cloudcore.email.messages.rows import ROWS, Recipient
from cloudcore.email.resources import TEMPLATE, Message, MessageStatus, RecipientKind
from cloudcore.keyring import Keyring
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.web.answers import answer_of
from cloudcore.web.bodies import ResourceRef
from cloudcore.wire import RFC3339, ResponseBody, or_absent


class MessageRecipient(ResponseBody, kw_only=True):
    """A recipient of a message, and the status of the delivery."""

    address: str
    kind: RecipientKind
    """`to`, `cc` or `bcc`."""
    status: MessageStatus
    reason: str | UnsetType = UNSET
    """Why it is not sent, as its mail server or the platform says; absent if nothing is wrong."""
    attempts: int
    last_attempt_at: RFC3339 | UnsetType = UNSET
    next_attempt_at: RFC3339 | UnsetType = UNSET
    """Absent unless it waits."""
    source_ip: str | UnsetType = UNSET
    """The dedicated IP that it is sent from; absent if that is the shared one."""


def _template(found: Message) -> ResourceRef | UnsetType:
    if found.template_id is None or found.template_name is None:
        return UNSET
    name = found.template_name
    crn = TEMPLATE.crn(found.region, found.account_id, name)
    return ResourceRef(id=found.template_id, crn=crn, name=name)


def _absent(_found: Message) -> UnsetType:
    return UNSET


_KEPT: Final = "Shown of one message, while its content is kept."
MESSAGES: Final = Methods(
    ROWS,
    composites=(
        Composite(name="from", shown=str, show=lambda found: found.sender),
        Composite(name="template", shown=ResourceRef | UnsetType, show=_template),
        Composite(name="html", words=_KEPT, shown=str | UnsetType, show=_absent),
        Composite(name="text", words=_KEPT, shown=str | UnsetType, show=_absent),
        Composite(name="headers", words=_KEPT, shown=dict[str, str] | UnsetType, show=_absent),
        Composite(name="variables", words=_KEPT, shown=dict[str, Any] | UnsetType, show=_absent),
        Composite(
            name="recipients",
            words="In the order of to, cc and bcc. Shown of one message.",
            shown=Sequence[MessageRecipient] | UnsetType,
            show=_absent,
        ),
    ),
)


def _context(message_id: str) -> str:
    return f"email message {message_id}"


def sealed_content(keyring: Keyring, message_id: str, content: Content) -> bytes:
    """Return the content of a message in sealed form."""
    return keyring.seal(msgspec.json.encode(content), _context(message_id))


def content_of(keyring: Keyring, message_id: str, sealed: bytes) -> Content:
    """Return the content of a message from its sealed form."""
    return msgspec.json.decode(keyring.open(sealed, _context(message_id)), type=Content)


def whole(found: Message, of: Sequence[Recipient], content: Content | None) -> ResponseBody:
    """Return the answer for one message; `content` is None if it was deleted."""
    kept = content or Content()
    return MESSAGES.one(
        found,
        recipients=[answer_of(MessageRecipient, each) for each in of],
        html=or_absent(kept.html),
        text=or_absent(kept.text),
        headers=kept.headers or UNSET,
        variables=kept.variables or UNSET,
    )
