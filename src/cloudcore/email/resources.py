"""Describe IP pools, sending identities, suppressions, templates and messages.

Mail is sent from a *sending identity*: a domain or an address whose ownership the account has
proved. A *suppression* is an address that gets no mail from the account. A *message* is accepted
mail to some recipients, each with a status of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

from msgspec import Meta, field

from cloudcore.errors import InvalidInput, invalid_field
from cloudcore.metering.sku import Sku
from cloudcore.resources.resource import (
    Description,
    Filter,
    Record,
    Reference,
    ReferenceTarget,
    Resource,
    ResourceName,
    Worked,
    fixed,
    given,
    own,
)

if TYPE_CHECKING:
    from email_validator import ValidatedEmail


class IPPool(Record, frozen=True, kw_only=True):
    """A group of dedicated IP addresses that a message may be sent from."""

    name: ResourceName
    description: Description = ""
    tags: Annotated[dict[str, str], given("a tag of the IP pool")] = field(default_factory=dict)


IP_POOL: Final = Resource(
    record=IPPool,
    service="email",
    one="ip_pool",
    many="ip_pools",
    words="IP pool",
    actions={
        "create": "CreateIPPool",
        "list": "ListIPPools",
        "get": "GetIPPool",
        "update": "UpdateIPPool",
        "delete": "DeleteIPPool",
    },
    quota=50,
    filters=(Filter("name"),),
)


Kind = Literal["domain", "address"]
Status = Literal["pending", "verified", "failed"]
VERIFIED: Final = "email.identity.verified"
FAILED: Final = "email.identity.failed"
CONFIRM: Final = "email:ConfirmIdentity"
"""The action of a used link in the audit log; no policy names it."""
WARNINGS: Final = frozenset({"DNS_UNREACHABLE", "MAIL_UNREACHABLE"})
"""Faults that may disappear by themselves."""
_MOST_CHARACTERS: Final = 253
"""The length limit of a DNS name as text (RFC 1035 §2.3.4)."""


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
    description: Description = ""
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
    """When the record is next looked up, or the confirmation mail sent; None if neither is due."""
    asked: Annotated[int, own(hidden=True)] = 0
    """How often the owner has requested a lookup or a confirmation mail."""
    confirmation_nonce: Annotated[str | None, own(hidden=True)] = None
    confirmation_hash: Annotated[bytes | None, own(hidden=True)] = None
    confirmation_expires_at: Annotated[int | None, own(hidden=True, form="time")] = None

    @property
    def domain(self) -> str:
        """Return the domain of the identity, or of its address."""
        return self.value.rpartition("@")[2]

    @property
    def event_data(self) -> dict[str, object]:
        """Return the data of an event about the identity."""
        return {
            "identity": {"id": self.id, "crn": SENDING_IDENTITY.crn_of(self), "name": self.value},
            "status": self.status,
        }


def validated(address: str) -> ValidatedEmail:
    """Parse a mail address; raise `ValueError` if it takes no mail (RFC 5321, RFC 5890)."""
    from email_validator import validate_email  # noqa: PLC0415 - takes time

    return validate_email(address, allow_smtputf8=False, check_deliverability=False)


def normal(value: str, kind: Kind) -> str:
    """Return an address or a domain in canonical form: in lower case, the domain in ASCII.

    Raise `InvalidInput` if no mail can be sent from it (RFC 5321, RFC 5890).
    """
    try:
        found = validated(value if kind == "address" else f"postmaster@{value}")
    except ValueError as error:
        words = f"value: it is no {kind} of mail: {error}"
        raise InvalidInput(words, field="value", reason="malformed") from None
    if "=?" in found.local_part:  # the mail library would read an encoded word (RFC 2047)
        raise invalid_field("value", "it has =?")
    domain = found.ascii_domain.lower()
    return domain if kind == "domain" else f"{found.local_part}@{domain}".lower()


def selector_of(identity_id: str) -> str:
    """Return the DKIM selector of a domain's key, which is different for each identity."""
    return f"m{identity_id.replace('-', '')[-16:]}"


def record_name(selector: str, domain: str) -> str:
    """Return the DNS name of a DKIM record (RFC 6376 §3.6.2.1).

    Raise `InvalidInput` if the name is too long for the DNS.
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
    refers={"ip_pool": ReferenceTarget(IP_POOL, "email:GetIPPool")},
    more_actions=("VerifyIdentity",),
    warnings=WARNINGS,
)
"""The sending identities of accounts."""


Reason = Literal["auto_bounce", "auto_complaint", "unsubscribe", "manual"]
UNSUBSCRIBE: Final = "email:Unsubscribe"
"""The action of an unsubscription in the audit log; no policy names it."""


class Suppression(Record, frozen=True, kw_only=True):
    """An address that gets no mail from the account."""

    address: Annotated[
        str, Meta(min_length=3, max_length=254), fixed("the address; fixed", heading="ADDRESS")
    ]
    """As it was given; addresses that differ in case alone, or in the form of an international
    domain, are one."""
    description: Description = ""
    expires_at: Annotated[
        int | None, given("when mail goes there again", heading="EXPIRES", form="time")
    ] = None
    """From then on it suppresses nothing, and another one of the address may be made."""
    reason: Annotated[Reason, own(heading="REASON")] = "manual"
    source_message_id: Annotated[str | None, own(hidden=True)] = None
    folded: Annotated[str, own(hidden=True)] = ""
    """The address in canonical form, which is unique: in lower case, its domain in ASCII."""


def folded(address: str) -> str:
    """Return an address in canonical form: in lower case, its domain in ASCII.

    Raise `InvalidInput` if no mail can be sent to it (RFC 5321, RFC 5890).
    """
    try:
        found = validated(address)
    except ValueError as error:
        raise invalid_field("address", str(error)) from None
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


MAX_SOURCE: Final = 100_000
"""Most characters of a body's source."""


class Template(Record, frozen=True, kw_only=True):
    """The subject and the body of messages, with variables."""

    name: ResourceName
    description: Description = ""
    subject: Annotated[
        str,
        Meta(min_length=1, max_length=998),
        given("subject of messages, with variables as {{ name }}", heading="SUBJECT"),
    ]
    html: Annotated[
        Annotated[str, Meta(min_length=1, max_length=MAX_SOURCE)] | None,
        given("body of messages as HTML, with variables, which are escaped", is_long=True),
    ] = None
    """The body as HTML; the values of variables are escaped in it."""
    text: Annotated[
        Annotated[str, Meta(min_length=1, max_length=MAX_SOURCE)] | None,
        given("body of messages as text, with variables", is_long=True),
    ] = None
    """The body as text. A template has one of both at least."""
    variables: Annotated[list[str], own(heading="VARIABLES")] = field(default_factory=list)
    """The names of the variables that subject and bodies use, sorted."""
    tags: Annotated[dict[str, str], given("a tag of the email template")] = field(
        default_factory=dict
    )


TEMPLATE: Final = Resource(
    record=Template,
    service="email",
    one="template",
    many="templates",
    words="email template",
    table="email_templates",
    methods=("create", "list", "get", "update"),
    actions={"delete": "DeleteTemplate"},
    more_actions=("PreviewTemplate",),
    filters=(Filter("name"),),
    sample=lambda number: {
        "name": f"template-{number}",
        "subject": "Hello {{ name }}",
        "text": "Hello {{ name }}.",
    },
)


MessageStatus = Literal["queued", "deferred", "complained", "bounced", "sent", "suppressed"]
"""The status of a message or a recipient. A message has the first of these that a recipient has.
``queued``: not tried yet; ``deferred``: to be tried again; ``sent``: accepted by the recipient's
mail server or the smarthost; ``bounced``: refused, or returned later; ``complained``: sent, and
reported as unwanted; ``suppressed``: not sent, because the address was suppressed."""
STATUSES: Final[tuple[MessageStatus, ...]] = get_args(MessageStatus)
WAITING: Final = frozenset({"queued", "deferred"})
"""Statuses of unsent messages."""
MESSAGES: Final = Sku("email.messages", "Messages, by recipient", "1000 messages", 1000)
RecipientKind = Literal["to", "cc", "bcc"]
MOST_RECIPIENTS: Final = 50
"""The most recipients of one message: to, cc and bcc together."""


class Message(Record, frozen=True, kw_only=True):
    """Mail that was accepted for some recipients, with its status."""

    sender: Annotated[str, own(hidden=True)]
    to: Annotated[list[str], own(heading="TO")] = field(default_factory=list)
    """As they were given, with names; those of `recipients` are addresses alone."""
    cc: Annotated[list[str], own()] = field(default_factory=list)
    bcc: Annotated[list[str], own()] = field(default_factory=list)
    """Further recipients, which the message itself does not name."""
    subject: Annotated[str, own(heading="SUBJECT")]
    status: Annotated[MessageStatus, own(heading="STATUS")] = "queued"
    """The first of `queued`, `deferred`, `complained`, `bounced`, `sent` and `suppressed` that a
    recipient has."""
    identity: Annotated[str, own()]
    """The domain or address of the sending identity that it was accepted for."""
    identity_id: Annotated[str, own(hidden=True)]
    template_id: Annotated[str | None, own(hidden=True)] = None
    template_name: Annotated[str | None, own(hidden=True)] = None
    ended_at: Annotated[int | None, own(hidden=True, form="time")] = None
    """When no recipient waited any more: from then on the content is kept for a week and the rest
    for thirty days."""


def status_of(statuses: Iterable[str]) -> MessageStatus:
    """Return the status of a message: the first of `STATUSES` that a recipient has."""
    known = set(statuses)
    return next(each for each in STATUSES if each in known)


def _identity(named: str) -> str:
    """Return the domain, address or id of the identity that a filter names, in lower case.

    `named` is the domain, the address, the id, or a CRN that ends in one of these.
    """
    return named.rpartition("identity/")[2].lower()


MESSAGE: Final = Resource(
    record=Message,
    service="email",
    one="message",
    many="messages",
    table="email_messages",
    key="id",
    # Its own routes accept and show a message: recipients and content have tables of their own.
    methods=("list",),
    actions={"create": "SendMessage", "get": "GetMessage"},
    methods_with_events=(),
    quota=100_000,
    filters=(
        Filter("status"),
        Filter("recipient", read=folded),
        Filter("identity", read=_identity),
    ),
)
"""The messages of accounts. The quota limits how many of an account wait to be sent."""
