"""How Python's mail library writes our mail: URLs in one piece, names in quotes, text as it is."""

from __future__ import annotations

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
from email.utils import formataddr
from functools import cache
from typing import cast


@cache
def policy_with_urls(*fields: str, cte_type: str = "8bit") -> EmailPolicy[EmailMessage]:
    """Return the SMTP policy that does not fold these header fields, whose names are in lower case.

    The library would fold the URLs in them into encoded words, which are not allowed there (RFC
    2369 §2). Nor does it fold names of mailboxes: the library would drop their quotes, and read a
    comma or an address in a name as another mailbox. `cte_type` is the transfer encoding of bodies:
    with ``7bit``, no mail server needs to re-encode a message.
    """

    class OneLine(UniqueUnstructuredHeader):
        def fold(self, *, policy: Policy) -> str:
            return f"{self.name}: {self}{policy.linesep}"  # type: ignore[attr-defined]

    class LineEach(UniqueAddressHeader):
        def fold(self, *, policy: Policy) -> str:
            written = f",{policy.linesep} ".join(map(_written, self.addresses)) or str(self)
            return f"{self.name}: {written}{policy.linesep}"  # type: ignore[attr-defined]

    headers = HeaderRegistry()
    for name in fields:
        headers.map_to_type(name, cast("type[BaseHeader]", OneLine))
    for name in ("from", "to", "cc"):
        headers.map_to_type(name, cast("type[BaseHeader]", LineEach))
    return SMTP.clone(header_factory=headers, cte_type=cte_type)


def _written(of: Address) -> str:
    """Return a mailbox for a header: its name quoted, or in encoded words if it is not ASCII."""
    if of.display_name.isascii():
        return formataddr((of.display_name, of.addr_spec))
    name = Header(of.display_name, "utf-8", header_name="From")
    return f"{name.encode(linesep=SMTP.linesep)} <{of.addr_spec}>"


def message_id_of(unique: str, sender: str) -> str:
    """Return a ``Message-ID`` at the domain of a sender's mailbox."""
    domain = sender.rpartition("@")[2].rstrip(">") or "localhost"
    return f"<{unique}@{domain}>"


def without_encoded_words(text: str) -> str:
    """Split the encoded words (RFC 2047) in a text, so that the mail library does not decode them.

    It would write their content, even line breaks, into the header.
    """
    return text.replace("=?", "= ?")
