"""Parse mailboxes (``Ada Lovelace <ada@example.com>``) and compose the bytes of a message for SMTP.

The bytes depend only on the accepted message: they have the same ``Message-ID`` and ``Date`` in
every attempt. Values of a request were checked before: they have no line breaks. Text that looks
like an encoded word is split here: otherwise the mail library would decode it, and write the line
breaks that it may contain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.header import Header
from email.headerregistry import (
    Address,
    BaseHeader,
    HeaderRegistry,
    UniqueAddressHeader,
    UniqueUnstructuredHeader,
)
from email.message import EmailMessage
from email.policy import SMTP, EmailPolicy, Policy
from email.utils import format_datetime, formataddr
from functools import cache
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct

from cloudcore.errors import InvalidInput, invalid_field

_MOST: Final = 320
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MAILBOX: Final = re.compile(
    r'(?:"(?P<quoted>[^"\\<>]*)"\s*|(?P<name>[^"<>@,;:\\]*))<(?P<within>[^<>\s]+)>'
    r"|(?P<bare>[^<>\s]+)"
)
"""Adjacent parts of the pattern never match the same characters, so it does not backtrack for
long."""

_PLAIN: Final = re.compile(r'[^"<>@,;:\\]+')


class Mailbox(NamedTuple):
    """The display name and the address of a sender or a recipient."""

    name: str
    """Empty if there is no display name."""
    address: str
    """The address as used in SMTP: its domain is in ASCII."""

    def __str__(self) -> str:
        """Return the mailbox as text, as in requests."""
        if not self.name:
            return self.address
        plain = _PLAIN.fullmatch(self.name)
        return f"{self.name} <{self.address}>" if plain else f'"{self.name}" <{self.address}>'

    @property
    def folded(self) -> str:
        """Return the address in canonical form, to compare it with suppressions."""
        return self.address.lower()


def mailbox(text: str, field: str) -> Mailbox:
    """Parse the mailbox in a request's `field`.

    Raises:
        InvalidInput: the text is no mailbox that mail can be from or go to (RFC 5321, RFC 5890), or
            has a line break.

    """
    from email_validator import EmailNotValidError, validate_email  # noqa: PLC0415 - takes time

    check_line(text, field)
    found = _MAILBOX.fullmatch(text.strip()) if len(text) <= _MOST else None
    if found is None:
        words = f"{field}: write it as ada@example.com, or as Ada Lovelace <ada@example.com>"
        raise InvalidInput(words, field=field, reason="malformed")
    try:
        address = validate_email(
            found["within"] or found["bare"], allow_smtputf8=False, check_deliverability=False
        )
    except EmailNotValidError as error:
        raise invalid_field(field, str(error)) from None
    if "=?" in address.local_part:  # the mail library would read an encoded word (RFC 2047)
        raise invalid_field(field, "it has =?")
    name = (found["quoted"] or found["name"] or "").strip()
    return Mailbox(name, f"{address.local_part}@{address.ascii_domain.lower()}")


def check_line(text: str, field: str) -> None:
    """Raise `InvalidInput` if the text of `field` has a line break or another control character."""
    if _CONTROL.search(text):
        words = f"{field}: a line break or another control character"
        raise InvalidInput(words, field=field, reason="malformed")


MOST_HEADERS: Final = 20
_MOST_NAME: Final = 76
_MOST_VALUE: Final = 900
"""A line has at most 998 characters (RFC 5322 §2.1.1)."""
_NAME: Final = re.compile(r"(?i:x|list)-[A-Za-z0-9-]+")
_OURS: Final = ("x-entrepot-",)
_LIST_FIELDS: Final = (
    "list-archive",
    "list-help",
    "list-id",
    "list-owner",
    "list-post",
    "list-subscribe",
    "list-unsubscribe",
    "list-unsubscribe-post",
)
"""The fields of RFC 2369, RFC 2919 and RFC 8058, whose values must not be split."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Content(Struct, frozen=True, omit_defaults=True):
    """The content of a message, which is stored sealed."""

    html: str | None = None
    text: str | None = None
    headers: dict[str, str] = {}
    variables: dict[str, Any] = {}
    """The variables that the template was rendered with."""


class MessageHeading(Struct, frozen=True):
    """The header fields that are the same for all recipients of a message."""

    id: str
    sender: str
    to: Sequence[str]
    cc: Sequence[str]
    subject: str
    created_at: int
    """Microseconds since the epoch."""

    @property
    def message_id(self) -> str:
        """Return the ``Message-ID``: the same in every attempt, at the sender's domain."""
        return f"<{self.id}@{mailbox(self.sender, 'from').address.rpartition('@')[2]}>"


def check_headers(headers: Mapping[str, str]) -> None:
    """Check the header fields of a request.

    Raises:
        InvalidInput: there are too many, or two of one name; or a name is not ``X-…`` or
            ``List-…``, or a value is not one line.

    """
    if len(headers) > MOST_HEADERS:
        raise invalid_field("headers", f"at most {MOST_HEADERS}", "too_many")
    if len({name.lower() for name in headers}) < len(headers):
        raise invalid_field("headers", "one is there twice", "duplicate")
    for name, value in headers.items():
        field, low = f"headers.{name[:_MOST_NAME]}", name.lower()
        check_line(name, "headers")
        is_ours = low.startswith(_OURS) or (low.startswith("list-") and low not in _LIST_FIELDS)
        if not _NAME.fullmatch(name) or len(name) > _MOST_NAME or is_ours:
            words = f"headers: {name[:_MOST_NAME]!r} is none of X-… or List-… that can be given"
            raise InvalidInput(words, field="headers", reason="not_allowed")
        check_line(value, field)
        is_plain = value.isascii() or not low.startswith("list-")
        if not value.strip() or len(value) > _MOST_VALUE or "=?" in value or not is_plain:
            words = f"{field}: 1 to {_MOST_VALUE} characters without =?, and of List-… of ASCII"
            raise InvalidInput(words, field=field, reason="malformed")


def composed(of: MessageHeading, content: Content, more: Mapping[str, str]) -> bytes:
    """Return the bytes of a message, with lines that end in CRLF.

    The header fields `more`, those of the unsubscribe link, are added unless the content has a
    ``List-Unsubscribe`` of its own.
    """
    mail: EmailMessage = EmailMessage(policy=_policy())
    mail["From"] = _address(of.sender)
    mail["To"] = [_address(each) for each in of.to] or "undisclosed-recipients:;"
    if of.cc:
        mail["Cc"] = [_address(each) for each in of.cc]
    mail["Subject"] = _as_it_is(of.subject)
    mail["Date"] = format_datetime(_EPOCH + timedelta(microseconds=of.created_at))
    mail["Message-ID"] = of.message_id
    given = {name.lower() for name in content.headers}
    for name, value in content.headers.items():
        mail[name] = value
    if "list-unsubscribe" not in given:
        for name, value in more.items():
            del mail[name]  # without our link, this field has no meaning
            mail[name] = value
    _set_bodies(mail, content, of.id)
    return mail.as_bytes()


def _set_bodies(mail: EmailMessage, content: Content, message_id: str) -> None:
    """Add text, HTML or both (RFC 2046 §5.1.4), in 7 bits, so that no server needs to change it."""
    if content.text is not None:
        mail.set_content(content.text)
        if content.html is not None:
            mail.add_alternative(content.html, subtype="html")
            # The same in every attempt, but unpredictable for the author of the content.
            mail.set_boundary(f"=_{message_id}")
    else:
        mail.set_content(content.html or "", subtype="html")


def _address(text: str) -> Address:
    found = mailbox(text, "to")
    return Address(display_name=_as_it_is(found.name), addr_spec=found.address)


def _written(of: Address) -> str:
    """Return a mailbox for a header: its name quoted, or in encoded words if it is not ASCII."""
    if of.display_name.isascii():
        return formataddr((of.display_name, of.addr_spec))
    name = Header(of.display_name, "utf-8", header_name="From")
    return f"{name.encode(linesep=SMTP.linesep)} <{of.addr_spec}>"


def _as_it_is(text: str) -> str:
    """Change a text so that the mail library recognizes no encoded word (RFC 2047) in it."""
    return text.replace("=?", "= ?")


@cache
def _policy() -> EmailPolicy[EmailMessage]:
    """Return the mail policy: SMTP in seven bits, without folding of list fields and mailboxes.

    The library would fold the URLs in these fields into encoded words, which are not allowed there
    (RFC 2369 §2). It would drop the quotes of a name that it folds, and read a comma or an address
    in the name as another mailbox.
    """

    class OneLine(UniqueUnstructuredHeader):
        def fold(self, *, policy: Policy) -> str:
            return f"{self.name}: {self}{policy.linesep}"  # type: ignore[attr-defined]

    class LineEach(UniqueAddressHeader):
        def fold(self, *, policy: Policy) -> str:
            written = f",{policy.linesep} ".join(map(_written, self.addresses)) or str(self)
            return f"{self.name}: {written}{policy.linesep}"  # type: ignore[attr-defined]

    headers = HeaderRegistry()
    for name in _LIST_FIELDS:
        headers.map_to_type(name, cast("type[BaseHeader]", OneLine))
    for name in ("from", "to", "cc"):
        headers.map_to_type(name, cast("type[BaseHeader]", LineEach))
    return SMTP.clone(header_factory=headers, cte_type="7bit")
