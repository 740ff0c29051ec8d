"""What a suppression is: an address that gets no mail from an account."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from cloudcore.errors import InvalidInput
from cloudcore.resources.record import Record, fixed, given, own
from cloudcore.resources.resource import Filter, Resource

UNSUBSCRIBE: Final = "email:Unsubscribe"
"""What the audit log calls it when a recipient wants no more mail; no policy names it."""


class Suppression(Record, frozen=True, kw_only=True):
    """An address that gets no mail from the account."""

    address: Annotated[
        str, Meta(min_length=3, max_length=254), fixed("the address; fixed", heading="ADDRESS")
    ]
    """As it was given; addresses that differ in case alone, or in the form of an international
    domain, are one."""
    description: Annotated[str, Meta(max_length=1000), given('for persons; "" takes it away')] = ""
    expires_at: Annotated[
        int | None, given("when mail goes there again", heading="EXPIRES", form="time")
    ] = None
    """From then on it suppresses nothing, and another one of the address may be made."""
    reason: Annotated[
        Literal["auto_bounce", "auto_complaint", "unsubscribe", "manual"], own(heading="REASON")
    ] = "manual"
    source_message_id: Annotated[str | None, own(hidden=True)] = None
    folded: Annotated[str, own(hidden=True)] = ""
    """The address in lower case, its domain in ASCII: what is unique."""


def folded(address: str) -> str:
    """Return an address as addresses are compared: in lower case, its domain in ASCII.

    Raises:
        InvalidInput: it is no address that mail can go to (RFC 5321, RFC 5890).

    """
    from email_validator import EmailNotValidError, validate_email  # noqa: PLC0415 - takes time

    try:
        found = validate_email(address, allow_smtputf8=False, check_deliverability=False)
    except EmailNotValidError as error:
        raise InvalidInput(f"address: {error}", field="address", reason="malformed") from None
    return f"{found.local_part}@{found.ascii_domain}".lower()


SUPPRESSION: Final = Resource(
    record=Suppression,
    service="email",
    one="suppression",
    many="suppressions",
    key="folded",
    named="address",
    check_key=lambda _: None,
    quota=100_000,
    sample=lambda number: {"address": f"ada+{number}@example.com"},
    filters=(Filter("address", "folded", folded), Filter("reason")),
)
