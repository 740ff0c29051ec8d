"""What a sending identity is: a domain or an address that an account may send mail from."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from cloudcore.email.ip_pool import IP_POOL
from cloudcore.errors import InvalidInput
from cloudcore.resources.record import Reference, Worked, fixed, given, own
from cloudcore.resources.resource import Filter, Resource, Target

Kind = Literal["domain", "address"]
Status = Literal["pending", "verified", "failed"]
VERIFIED: Final = "email.identity.verified"
FAILED: Final = "email.identity.failed"
CONFIRM: Final = "email:ConfirmIdentity"
"""What the audit log calls the use of a link; no policy names it."""
WARNINGS: Final = frozenset({"DNS_UNREACHABLE", "MAIL_UNREACHABLE"})
"""Faults that may go by themselves."""
_MOST_CHARACTERS: Final = 253
"""Of a name in the DNS (RFC 1035 §2.3.4), in text."""


class SendingIdentity(Worked, frozen=True, kw_only=True):
    """A domain or an address that the account may send mail from."""

    value: Annotated[
        str, Meta(min_length=3, max_length=254), fixed("the domain or address", heading="VALUE")
    ]
    """In lower case, its domain in ASCII. Other accounts may have the same, each with a proof of
    its own."""
    kind: Annotated[Kind, fixed("whether it is a domain or an address", heading="KIND")]
    """A domain is proved by its DKIM record, an address by a link that is sent there. The addresses
    of a domain may all be sent from, and none of the domains below it."""
    status: Annotated[Status, own(heading="STATUS")] = "pending"
    """`failed`: the record of a domain is not there, or not any more."""
    description: Annotated[str, Meta(max_length=1000), given('for persons; "" takes it away')] = ""
    ip_pool: Annotated[Reference | None, given("IP pool that its mail is sent from")] = None
    verified_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """When it was verified last."""
    checked_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """When the record of a domain was looked for last."""
    tags: Annotated[dict[str, str], given("a tag of the sending identity")] = field(
        default_factory=dict
    )
    dkim_selector: Annotated[str | None, own(hidden=True)] = None
    dkim_public: Annotated[str | None, own(hidden=True)] = None
    """The public key as the record has it: DER in base64."""
    dkim_key: Annotated[bytes | None, own(hidden=True)] = None
    """The private key, sealed."""
    check_at: Annotated[int | None, own(hidden=True, form="time")] = None
    """When there is work: a record to look for, or a mail to send; None if there is none."""
    asked: Annotated[int, own(hidden=True)] = 0
    """How often its owner has asked for that."""
    confirmation_nonce: Annotated[str | None, own(hidden=True)] = None
    confirmation_hash: Annotated[bytes | None, own(hidden=True)] = None
    confirmation_expires_at: Annotated[int | None, own(hidden=True, form="time")] = None

    @property
    def domain(self) -> str:
        """Return the domain of its mail."""
        return self.value.rpartition("@")[2]

    @property
    def told(self) -> dict[str, object]:
        """Return what events say of it."""
        return {
            "identity": {"id": self.id, "crn": SENDING_IDENTITY.crn_of(self), "name": self.value},
            "status": self.status,
        }


def normal(value: str, kind: Kind) -> str:
    """Return an address or a domain as they are compared: in lower case, the domain in ASCII.

    Raises:
        InvalidInput: mail cannot be from it (RFC 5321, RFC 5890).

    """
    from email_validator import EmailNotValidError, validate_email  # noqa: PLC0415 - takes time

    address = value if kind == "address" else f"postmaster@{value}"
    try:
        found = validate_email(address, allow_smtputf8=False, check_deliverability=False)
    except EmailNotValidError as error:
        words = f"value: it is no {kind} of mail: {error}"
        raise InvalidInput(words, field="value", reason="malformed") from None
    if "=?" in found.local_part:  # the mail library would read an encoded word (RFC 2047)
        raise InvalidInput("value: it has =?", field="value", reason="malformed")
    domain = found.ascii_domain.lower()
    return domain if kind == "domain" else f"{found.local_part}@{domain}".lower()


def selector_of(identity_id: str) -> str:
    """Return the selector of a domain's key: another one for each identity."""
    return f"m{identity_id.replace('-', '')[-16:]}"


def record_name(selector: str, domain: str) -> str:
    """Return the name of a DKIM record (RFC 6376 §3.6.2.1).

    Raise `InvalidInput` if it were too long for the DNS.
    """
    name = f"{selector}._domainkey.{domain}"
    if len(name) > _MOST_CHARACTERS:
        words = "value: the domain is too long for the name of its DKIM record"
        raise InvalidInput(words, field="value", reason="out_of_range")
    return name


def _filtered(value: str) -> str:
    return normal(value, "address" if "@" in value else "domain")


SENDING_IDENTITY: Final = Resource(
    record=SendingIdentity,
    service="email",
    one="identity",
    many="identities",
    words="sending identity",
    table="email_identities",
    key="value",
    check_key=lambda _: None,
    sample=lambda number: {"value": f"mail-{number}.example.com", "kind": "domain"},
    filters=(Filter("value", read=_filtered), Filter("kind"), Filter("status")),
    refers={"ip_pool": Target(IP_POOL, "email:GetIPPool")},
    more_actions=("VerifyIdentity",),
    warnings=WARNINGS,
)
"""The sending identities of accounts."""
