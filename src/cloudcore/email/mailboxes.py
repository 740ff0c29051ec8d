"""Who a message is from and goes to, as requests write it: ``Ada Lovelace <ada@example.com>``."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cloudcore.errors import InvalidInput

_MOST: Final = 320
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MAILBOX: Final = re.compile(
    r'(?:"(?P<quoted>[^"\\<>]*)"\s*|(?P<name>[^"<>@,;:\\]*))<(?P<within>[^<>\s]+)>'
    r"|(?P<bare>[^<>\s]+)"
)
"""No two parts of it, one behind the other, take the same characters: it ends soon."""

_PLAIN: Final = re.compile(r'[^"<>@,;:\\]+')


class Mailbox(NamedTuple):
    """A name and an address."""

    name: str
    """Empty if it has none."""
    address: str
    """As mail goes there: its domain in ASCII."""

    def __str__(self) -> str:
        """Return it as requests write it."""
        if not self.name:
            return self.address
        plain = _PLAIN.fullmatch(self.name)
        return f"{self.name} <{self.address}>" if plain else f'"{self.name}" <{self.address}>'

    @property
    def folded(self) -> str:
        """Return the address as suppressions compare them."""
        return self.address.lower()


def mailbox(text: str, field: str) -> Mailbox:
    """Return the mailbox that a request's `field` names.

    Raises:
        InvalidInput: it is none that mail can be from or go to (RFC 5321, RFC 5890); nor is one
            with a line break (E8).

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
        raise InvalidInput(f"{field}: {error}", field=field, reason="malformed") from None
    if "=?" in address.local_part:  # the mail library would read an encoded word (RFC 2047)
        raise InvalidInput(f"{field}: it has =?", field=field, reason="malformed")
    name = (found["quoted"] or found["name"] or "").strip()
    return Mailbox(name, f"{address.local_part}@{address.ascii_domain.lower()}")


def check_line(text: str, field: str) -> None:
    """Raise `InvalidInput` if a text is more than one line, or has another control character."""
    if _CONTROL.search(text):
        words = f"{field}: a line break or another control character"
        raise InvalidInput(words, field=field, reason="malformed")
