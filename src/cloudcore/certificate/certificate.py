"""The record and the resource of certificates, and the challenges for their domains.

The owner of a domain publishes ``_acme-challenge.<domain>. CNAME <number>.<id>.acme.<zone>.`` once.
At each issue and renewal, the platform publishes TXT values at the target of the CNAME, where the
authority looks them up (RFC 8555 §8.4). Each domain of a certificate has its own target, so that
its values fit into a small DNS response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, field

from cloudcore.certificate.domains import base_of
from cloudcore.errors import NotFound
from cloudcore.jobs.faults import Fault
from cloudcore.resources.resource import Filter, Resource, Worked, fixed, given, own
from cloudcore.wire import rfc3339

Status = Literal["pending_validation", "issuing", "active", "expired", "revoked", "failed"]
Source = Literal["acme", "uploaded"]
KeyAlgorithm = Literal["ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-4096"]
KeySource = Literal["platform", "owner", "uploaded"]
FaultCode = Literal[
    "CNAME_MISSING",
    "CNAME_MISMATCH",
    "CA_REFUSED",
    "CA_UNREACHABLE",
    "DNS_UNREACHABLE",
    "RENEWAL_FAILED",
    "REVOCATION_FAILED",
    "KEY_UNUSABLE",
]

VALIDATION_SECONDS: Final = 7 * 24 * 3600
"""A certificate fails if its domains are not proved within this time."""
ISSUED: Final = "certificate.certificate.issued"
RENEWED: Final = "certificate.certificate.renewed"
REVOKED: Final = "certificate.certificate.revoked"
EXPIRED: Final = "certificate.certificate.expired"
EXPIRING: Final = "certificate.certificate.expiring"
"""Type of the event that an upload expires soon; uploads are not renewed."""
FAILED: Final = "certificate.certificate.failed"
RENEWAL_FAILED: Final = "certificate.renewal.failed"
KEY_EXPORTED: Final = "certificate.key.exported"
EVENTS: Final = (
    EXPIRED,
    EXPIRING,
    FAILED,
    ISSUED,
    RENEWED,
    REVOKED,
    KEY_EXPORTED,
    RENEWAL_FAILED,
)
WARNED_DAYS: Final = (30, 7)
"""The owner of an uploaded certificate is warned this many days before the expiry."""
WARNINGS: Final = frozenset({"CA_UNREACHABLE", "DNS_UNREACHABLE"})
"""Codes of faults that may disappear without a change."""


class CertificateMissing(NotFound):
    """The certificate does not exist, or belongs to another account."""

    def __init__(self) -> None:
        super().__init__("there is no such certificate", reason="certificate_not_found")


class Challenge(NamedTuple):
    """The proof for one domain of a certificate; its DNS names end in a dot."""

    domain: str
    cname_record_name: str
    expected_cname: str
    our_dns: bool
    """True if the owner need not set the record; see `Proofs.is_hosted`."""
    verified_at: int | None
    """When the domain was first proved, in microseconds since the epoch; None before."""

    def seen(self, now: int) -> Challenge:
        """Return the challenge marked as verified at `now`, unless it was verified before."""
        return self if self.verified_at is not None else self._replace(verified_at=now)


def challenges_of(
    certificate_id: str, domains: Sequence[str], zone: str, hosted: Sequence[str], now: int
) -> tuple[Challenge, ...]:
    """Return one challenge for each domain of a new certificate.

    Owners point their CNAMEs at names in `zone`, the platform's. The domains in `hosted` need no
    record, and are proved from the beginning. A wildcard and its domain (`base_of`) share a record.
    """
    bases = list(dict.fromkeys(base_of(each) for each in domains))
    targets = {
        base: f"{number}.{certificate_id}.acme.{zone}." for number, base in enumerate(bases, 1)
    }
    return tuple(
        Challenge(
            domain,
            f"_acme-challenge.{base_of(domain)}.",
            targets[base_of(domain)],
            domain in hosted,
            now if domain in hosted else None,
        )
        for domain in domains
    )


def values_by_record(
    challenges: Sequence[Challenge], values: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Map each target of a CNAME to the TXT values that it must have at the same time.

    `values` are from the authority, one for each challenge, in the same order. A wildcard and its
    domain (`base_of`) share a target, which then has two values.
    """
    found: dict[str, tuple[str, ...]] = {}
    for challenge, value in zip(challenges, values, strict=True):
        before = found.get(challenge.expected_cname, ())
        found[challenge.expected_cname] = (*before, value) if value not in before else before
    return found


def renewal_at(not_before: int, expires_at: int) -> int:
    """Return when to renew a certificate: when a third of its lifetime is left."""
    return expires_at - (expires_at - not_before) // 3


class Certificate(Worked, frozen=True, kw_only=True):
    """A certificate. The `subject` of a fault is the domain that it concerns, if any."""

    name: Annotated[str, Meta(min_length=1, max_length=63), fixed(heading="NAME")]
    domains: Annotated[tuple[str, ...], fixed(heading="DOMAINS")] = ()
    status: Annotated[Status, own(heading="STATUS")]
    """``expired`` as soon as `expires_at` has passed."""
    source: Annotated[Source, fixed(heading="SOURCE")]
    """`acme`: an authority of the platform issues and renews the certificate."""
    faults: Annotated[tuple[Fault, ...], own(hidden=True)] = ()
    issuer: Annotated[str, own(hidden=True)] = ""
    """The name of the authority; empty if the certificate was uploaded."""
    key_algorithm: Annotated[KeyAlgorithm, fixed()] = "ecdsa-p256"
    challenges: Annotated[tuple[Challenge, ...], own(hidden=True)] = ()
    certificate_pem: Annotated[str | None, own()] = None
    """The certificate without its chain; absent until it is issued, like `chain_pem`,
    `fingerprint`, `issued_at` and `expires_at`."""
    chain_pem: Annotated[str | None, own()] = None
    """The issuers in order, without the root."""
    fingerprint: Annotated[str | None, own()] = None
    """SHA-256 of the certificate's DER, in lower-case hex."""
    private_key: Annotated[bytes | None, own(hidden=True)] = None
    """The sealed private key; None if nothing was issued yet, or the owner made the key."""
    csr: Annotated[bytes | None, own(hidden=True)] = None
    """The owner's signing request, in DER; None if the key is made here or was uploaded."""
    private_key_exported_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """When this private key was exported; null if it was not."""
    kms_key_id: Annotated[str | None, own(hidden=True)] = None
    """Id of the KMS key that seals `private_key`."""
    issued_at: Annotated[int | None, own(form="time")] = None
    """When the certificate was issued; for an upload, when its validity begins."""
    expires_at: Annotated[int | None, own(heading="EXPIRES", form="time")] = None
    renew_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """When the certificate will be renewed; null if it will not be."""
    warned_days: Annotated[int | None, own(hidden=True)] = None
    """The last warning of `WARNED_DAYS` that the owner got; None if there was none."""
    revocation_asked_at: Annotated[int | None, own(form="time", hidden=True)] = None
    is_recheck_asked: Annotated[bool, own(hidden=True)] = False
    tags: Annotated[dict[str, str], given("a tag of the certificate")] = field(default_factory=dict)

    @property
    def crn(self) -> str:
        """Return the certificate's CRN."""
        return CERTIFICATE.crn_of(self)

    @property
    def is_uploaded(self) -> bool:
        """Return True if the owner uploaded the certificate."""
        return self.source == "uploaded"

    @property
    def key_source(self) -> KeySource:
        """Return who made the private key."""
        if self.is_uploaded:
            return "uploaded"
        return "platform" if self.csr is None else "owner"

    @property
    def event_data(self) -> Mapping[str, object]:
        """Return the data of the certificate's events."""
        return {
            "certificate": {"id": self.id, "crn": self.crn, "name": self.name},
            "domains": list(self.domains),
            "status": self.status,
            "fingerprint": self.fingerprint,
            "expires_at": None if self.expires_at is None else rfc3339(self.expires_at),
            "faults": [
                {"code": each.code, "message": each.message, "domain": each.subject or None}
                for each in self.faults
            ],
        }

    def status_at(self, now: int) -> Status:
        """Return the status at a moment: expired even if no chore has recorded that yet."""
        is_over = self.status == "active" and (self.expires_at or 0) <= now
        return "expired" if is_over else self.status


CERTIFICATE: Final = Resource(
    record=Certificate,
    service="certificate",
    one="certificate",
    many="certificates",
    filters=(Filter("name"),),
    methods=("list", "get", "update", "delete"),
    actions={"create": "CreateCertificate"},
    more_actions=(
        "ExportPrivateKey",
        "RecheckChallenges",
        "RevokeCertificate",
        "UploadCertificate",
    ),
    methods_with_events=(),
    warnings=WARNINGS,
)
