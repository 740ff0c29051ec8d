"""What a certificate is."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, field

from cloudcore.certificate.challenges import Challenge
from cloudcore.certificate.rules import WARNINGS, KeyAlgorithm, KeySource, Source, Status
from cloudcore.jobs.faults import Fault
from cloudcore.resources.record import Worked, fixed, given, own
from cloudcore.resources.resource import Filter, Resource


class Certificate(Worked, frozen=True, kw_only=True):
    """A certificate; a fault of a challenge has its domain as its subject."""

    name: Annotated[str, Meta(min_length=1, max_length=63), fixed(heading="NAME")]
    domains: Annotated[tuple[str, ...], fixed(heading="DOMAINS")] = ()
    status: Annotated[Status, own(heading="STATUS")]
    source: Annotated[Source, fixed(heading="SOURCE")]
    faults: Annotated[tuple[Fault, ...], own(hidden=True)] = ()
    issuer: Annotated[str, own(hidden=True)] = ""
    """The name of the authority; empty if it was uploaded."""
    key_algorithm: Annotated[KeyAlgorithm, fixed()] = "ecdsa-p256"
    challenges: Annotated[tuple[Challenge, ...], own(hidden=True)] = ()
    certificate_pem: Annotated[str | None, own()] = None
    chain_pem: Annotated[str | None, own()] = None
    fingerprint: Annotated[str | None, own()] = None
    private_key: Annotated[bytes | None, own(hidden=True)] = None
    """Sealed; None if nothing was issued yet, or its owner made the key."""
    csr: Annotated[bytes | None, own(hidden=True)] = None
    """The signing request of its owner, in DER, or None if the key is made here or was uploaded."""
    private_key_exported_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """When a copy of the key was given to the owner; None after each renewal, since it has
    another key."""
    kms_key_id: Annotated[str | None, own(hidden=True)] = None
    """Of the KMS key that seals it, or None if the root key does."""
    issued_at: Annotated[int | None, own(form="time")] = None
    expires_at: Annotated[int | None, own(heading="EXPIRES", form="time")] = None
    renew_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """None if it is not renewed."""
    warned_days: Annotated[int | None, own(hidden=True)] = None
    """How many days before its end its owner was told last, or None if that was not yet."""
    revocation_asked_at: Annotated[int | None, own(form="time", hidden=True)] = None
    is_recheck_asked: Annotated[bool, own(hidden=True)] = False
    tags: Annotated[dict[str, str], given("a tag of the certificate")] = field(default_factory=dict)

    @property
    def crn(self) -> str:
        """Return its CRN."""
        return CERTIFICATE.crn_of(self)

    @property
    def is_uploaded(self) -> bool:
        """Return True if no authority here issued it."""
        return self.source == "uploaded"

    @property
    def key_source(self) -> KeySource:
        """Return who made its key."""
        if self.is_uploaded:
            return "uploaded"
        return "platform" if self.csr is None else "owner"

    def status_at(self, now: int) -> Status:
        """Return its status now: the chore that notes its end may come later."""
        is_over = self.status == "active" and (self.expires_at or 0) <= now
        return "expired" if is_over else self.status


CERTIFICATE: Final = Resource(
    record=Certificate,
    service="certificate",
    one="certificate",
    many="certificates",
    filters=(Filter("name"),),
    methods=("delete",),
    # By hand: an answer shows the status as it is at that moment, and which domain has which fault.
    actions={
        "create": "CreateCertificate",
        "list": "ListCertificates",
        "get": "GetCertificate",
        "update": "UpdateCertificate",
    },
    more_actions=(
        "ExportPrivateKey",
        "RecheckChallenges",
        "RevokeCertificate",
        "UploadCertificate",
    ),
    told=(),
    warnings=WARNINGS,
)
