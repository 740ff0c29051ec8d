"""The bodies of ``/v1/certificates``: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from cloudcore.certificate.certificate import (
    Certificate,
    Challenge,
    KeyAlgorithm,
    KeySource,
    Source,
    Status,
)
from cloudcore.certificate.checks import MOST_KEY_PEM, MOST_PEM, MOST_REQUEST_PEM
from cloudcore.certificate.domains import MOST_DOMAINS
from cloudcore.certificate.services import CERTIFICATES
from cloudcore.uuids import Uuid
from cloudcore.web.fault_records import FaultRecord
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, or_absent, rfc3339

CertificateName = Annotated[str, Meta(min_length=1, max_length=63)]
Domains = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=255)]],
    Meta(min_length=1, max_length=MOST_DOMAINS),
]
Pem = Annotated[str, Meta(max_length=MOST_PEM)]


class CreateCertificate(RequestBody):
    """A certificate that an authority is to issue."""

    name: CertificateName
    domains: Domains | UnsetType = UNSET
    """In the form of DNS (``xn--``); of a wildcard, the star is its whole first label. With
    `csr_pem` they may be left out."""
    key_algorithm: KeyAlgorithm | UnsetType = UNSET
    """Of the key that is made; by default ``ecdsa-p256``. With `csr_pem` it follows from that."""
    csr_pem: Annotated[str, Meta(max_length=MOST_REQUEST_PEM)] | UnsetType = UNSET
    """A signing request (PKCS #10 in PEM), to keep the private key to yourself. It is for its names
    alone, and each renewal has its key again."""
    tags: dict[str, str] = field(default_factory=dict)


class UploadCertificate(RequestBody):
    """A certificate of another authority, with its key."""

    name: CertificateName
    certificate_pem: Pem
    """The certificate alone."""
    private_key_pem: Annotated[str, Meta(max_length=MOST_KEY_PEM)]
    """Its key, without a password; it is never shown again."""
    chain_pem: Pem = ""
    """Its issuers in order, the nearest first."""
    domains: Domains | None = None
    """If given, domains that it must be for."""
    tags: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Show no key."""
        return f"UploadCertificate({self.name!r})"


class UpdateCertificate(RequestBody):
    """The fields to change; `tags` are replaced whole."""

    tags: dict[str, str] | UnsetType | None = UNSET


class CertificateQuery(PageQuery):
    """The filter of a list of certificates."""

    name: CertificateName | None = None
    """Only the certificate of this name."""


class ChallengeRecord(ResponseBody):
    """The proof for one domain: its owner sets the CNAME once."""

    domain: str
    cname_record_name: str
    """The name of the record; a wildcard and the domain that it is below share one."""
    expected_cname: str
    """What the record points to."""
    our_dns: bool
    """The platform hosts the domain: nobody needs to set the record."""
    verified: bool
    faults: Sequence[FaultRecord]
    verified_at: RFC3339 | UnsetType = UNSET
    """When it was first seen; absent before."""


class CertificateRecord(ResponseBody):
    """A certificate; its private key is not shown."""

    id: Uuid
    crn: str
    name: str
    domains: Sequence[str]
    status: Status
    source: Source
    """`acme`: an authority of the platform issues and renews it."""
    key_algorithm: KeyAlgorithm
    key_source: KeySource
    """Who made the private key: `platform` (it is kept here), `owner` (a signing request came, and
    it is not here), or `uploaded` with the certificate."""
    private_key_exported_at: RFC3339 | None
    """When a copy of this key was given; null if none was."""
    challenges: Sequence[ChallengeRecord]
    renew_at: RFC3339 | None
    """When it is renewed; null if it is not."""
    tags: dict[str, str]
    faults: Sequence[FaultRecord]
    created_at: RFC3339
    updated_at: RFC3339
    certificate_pem: str | UnsetType = UNSET
    """The certificate alone; absent until it is issued, as are the next four."""
    chain_pem: str | UnsetType = UNSET
    """Its issuers in order, without the root."""
    fingerprint: str | UnsetType = UNSET
    """SHA-256 of its DER, in lower-case hex."""
    issued_at: RFC3339 | UnsetType = UNSET
    """When it was issued; of an uploaded one, from when it is valid."""
    expires_at: RFC3339 | UnsetType = UNSET


class OneCertificate(ResponseBody):
    """A certificate, wrapped."""

    certificate: CertificateRecord


class ExportedKey(ResponseBody):
    """A certificate with its private key."""

    certificate: CertificateRecord
    private_key_pem: str
    """PKCS #8 without a password: a secret. It is given once."""

    def __repr__(self) -> str:
        """Show no key."""
        return f"ExportedKey({self.certificate.name!r})"


class ManyCertificates(ResponseBody):
    """A page of certificates."""

    certificates: Sequence[CertificateRecord]
    meta: PageMeta


def certificate_record(found: Certificate, now: int) -> CertificateRecord:
    """Return the record of a certificate."""
    return CertificateRecord(
        id=found.id,
        crn=found.crn,
        name=found.name,
        domains=found.domains,
        status=found.status_at(now),
        source=found.source,
        key_algorithm=found.key_algorithm,
        key_source=found.key_source,
        private_key_exported_at=_moment(found.private_key_exported_at),
        challenges=[_challenge(found, each) for each in found.challenges],
        certificate_pem=or_absent(found.certificate_pem),
        chain_pem=or_absent(found.chain_pem),
        fingerprint=or_absent(found.fingerprint),
        issued_at=or_absent(_moment(found.issued_at)),
        expires_at=or_absent(_moment(found.expires_at)),
        renew_at=_moment(found.renew_at),
        tags=dict(found.tags),
        faults=_faults(found, ""),
        created_at=rfc3339(found.created_at),
        updated_at=rfc3339(found.updated_at),
    )


def one_certificate(found: Certificate, now: int) -> OneCertificate:
    """Return the record of a certificate, wrapped."""
    return OneCertificate(certificate=certificate_record(found, now))


def _challenge(found: Certificate, challenge: Challenge) -> ChallengeRecord:
    return ChallengeRecord(
        domain=challenge.domain,
        cname_record_name=challenge.cname_record_name,
        expected_cname=challenge.expected_cname,
        our_dns=challenge.our_dns,
        verified=challenge.verified_at is not None,
        verified_at=or_absent(_moment(challenge.verified_at)),
        faults=_faults(found, challenge.domain),
    )


def _faults(found: Certificate, subject: str) -> Sequence[FaultRecord]:
    return CERTIFICATES.bodies.faults([each for each in found.faults if each.subject == subject])


def _moment(moment: int | None) -> str | None:
    return None if moment is None else rfc3339(moment)
