"""Issuers of certificates: the install's own authority, or an ACME server.

Before an order, `check_records` checks the CNAMEs by which owners of domains delegate their
challenges to the platform.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, NamedTuple, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from cloudcore.account_rows import handle_of
from cloudcore.acme import client as acme
from cloudcore.certificate import rows
from cloudcore.certificate.certificate import Certificate, Challenge, FaultCode, values_by_record
from cloudcore.certificate.domains import DomainGrants, is_within
from cloudcore.certificate.keys import UNREADABLE
from cloudcore.db.base import Connection, Database
from cloudcore.keyring import Keyring
from cloudcore.outbound.dns_resolver import DnsFailed, DnsResolver

_AT_ONCE: Final = 10


class RecordCheck(NamedTuple):
    """The result of checking one challenge's record, or why an authority refused a domain."""

    domain: str
    """The requested domain; a wildcard has its star."""
    code: FaultCode | None
    """None if the record is right."""
    message: str = ""


async def check_records(
    resolver: DnsResolver, challenges: Sequence[Challenge]
) -> list[RecordCheck]:
    """Check the DNS records of challenges; challenges with `our_dns` always pass."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def look(challenge: Challenge) -> RecordCheck:
        if challenge.our_dns:
            return RecordCheck(challenge.domain, None)
        async with slots:
            return await _look(resolver, challenge)

    return list(await asyncio.gather(*map(look, challenges)))


async def _look(resolver: DnsResolver, challenge: Challenge) -> RecordCheck:
    domain, record = challenge.domain, challenge.cname_record_name
    try:
        target = await resolver.cname(record)
    except DnsFailed as error:
        return RecordCheck(domain, "DNS_UNREACHABLE", str(error))
    if target is None:
        wanted = f"publish {record} CNAME {challenge.expected_cname}"
        return RecordCheck(domain, "CNAME_MISSING", f"{record} has no CNAME; {wanted}")
    if target != challenge.expected_cname.lower():
        return RecordCheck(
            domain,
            "CNAME_MISMATCH",
            f"{record} is a CNAME of {target[:255]}, and not of {challenge.expected_cname}",
        )
    return RecordCheck(domain, None)


Reason = Literal["CNAME_MISSING", "CNAME_MISMATCH", "CA_REFUSED"]
"""Codes of faults that the owner of a certificate can remove."""

CNAME_MISSING: Final = "CNAME_MISSING"
CNAME_MISMATCH: Final = "CNAME_MISMATCH"
CA_REFUSED: Final = "CA_REFUSED"


class Chain(NamedTuple):
    """An issued certificate and its issuers, in DER."""

    certificate: bytes
    """The certificate itself."""
    issuers: tuple[bytes, ...]
    """The issuers in order, without the root."""


class AuthorityRefused(Exception):
    """The authority refused; a retry helps only after a change.

    `message` is the reason, for the owner of the certificate; it contains no secret.
    """

    def __init__(self, code: Reason, message: str, domains: Sequence[RecordCheck] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.domains = tuple(domains)
        """The domains that were refused; empty if the reason does not concern a domain."""


class AuthorityUnreachable(Exception):
    """An authority did not answer, or was overloaded; a retry may help.

    The message contains no secret.
    """


@dataclass(frozen=True, slots=True)
class TxtRecords:
    """Publishes the TXT records of one certificate's challenges, in the platform's zone.

    All values must be published at the same time: a wildcard and its domain (`base_of`) need two
    values at the same name.
    """

    database: Database
    certificate: Certificate

    async def publish(self, values: Mapping[str, str]) -> None:
        """Publish a value for each domain; remove all earlier values.

        `values` maps the requested domains to TXT values. On return, every DNS responder that reads
        the install's database answers with these values.
        """
        chosen = [each for each in self.certificate.challenges if each.domain in values]
        texts = values_by_record(chosen, [values[each.domain] for each in chosen])
        for each in chosen:
            if each.our_dns:  # there is no CNAME, so the values are at the challenge's own name
                texts[each.cname_record_name] = texts[each.expected_cname]
        await self.database.write(rows.put_texts, self.certificate.id, texts.items())

    async def withdraw(self) -> None:
        """Remove all values; do nothing if there are none."""
        await self.database.write(rows.put_texts, self.certificate.id, ())


class Issuer(Protocol):
    """An authority that issues certificates.

    `issue` and `revoke` may be called again with the same arguments, if the process died during the
    first call. They are called on the event loop, without a transaction.
    """

    @property
    def name(self) -> str:
        """Return the name stored with each certificate, such as ``embedded`` or ``acme``."""

    @property
    def checks_dns(self) -> bool:
        """Return True if the authority reads a TXT record for each domain before it issues.

        The owner of each domain must then have set the challenge's CNAME; the issuer calls
        `TxtRecords.publish`.
        """

    async def issue(self, csr_der: bytes, domains: Sequence[str], txt: TxtRecords) -> Chain:
        """Return a certificate for exactly `domains`, with the key of a signing request.

        `domains` are in the form that `check_domains` returns, and equal the names in the request.

        Raise `AuthorityRefused` if the authority will not issue before something is changed,
        `AuthorityUnreachable` if it did not answer.
        """

    async def revoke(self, certificate_der: bytes, reason: str | None) -> None:
        """Revoke a certificate that this authority issued; do nothing if it is already revoked.

        `reason` is a word of RFC 5280 such as ``keyCompromise``, or None.

        Raise `AuthorityRefused` if the authority does not know the certificate, or will not revoke
        it, `AuthorityUnreachable` if it did not answer.
        """


class Issuers(NamedTuple):
    """The authorities of an install."""

    current: Issuer
    """The authority that issues new certificates and renewals."""
    others: tuple[Issuer, ...] = ()
    """Authorities that only revoke certificates that they issued before."""

    def named(self, name: str) -> Issuer:
        """Return the authority with this name.

        Raise `AuthorityRefused` if the operator has removed it.
        """
        for each in (self.current, *self.others):
            if each.name == name:
                return each
        raise AuthorityRefused(CA_REFUSED, f"this install has no authority {name!r} any more")


_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the curve P-256 (NIST SP 800-186)."""
_PUBLISH_SECONDS: Final = 60.0
_CODES: Final[dict[str, Reason]] = {
    "dns": CNAME_MISSING,
    "unauthorized": CNAME_MISMATCH,
    "incorrectResponse": CNAME_MISMATCH,
}
"""Maps ACME problem types that concern a domain's record; all others become `CA_REFUSED`."""
_MISSING: Final = ("no txt record", "nxdomain", "error retrieving txt")
"""Texts in a problem's detail that mean that the record is missing, not wrong."""
_REASONS: Final = {
    "unspecified": 0,
    "keyCompromise": 1,
    "affiliationChanged": 3,
    "superseded": 4,
    "cessationOfOperation": 5,
}
"""Revocation reasons of RFC 5280 §5.3.1 that the owner of a server's certificate can give."""


def account_key(keyring: Keyring, directory: str) -> ec.EllipticCurvePrivateKey:
    """Return the key of the install's account at an authority; `directory` is the authority's URL.

    It is derived from the root key, so every node computes the same key, and none is stored.
    """
    seed = int.from_bytes(keyring.derive(f"acme account {directory}"))
    return ec.derive_private_key(1 + seed % (_P256_ORDER - 1), ec.SECP256R1())


class AcmeIssuer:
    """An ACME authority that the operator configured, and to whose terms the operator agreed."""

    name: ClassVar[str] = "acme"
    checks_dns: ClassVar[bool] = True

    def __init__(
        self, directory: acme.Directory, key: ec.EllipticCurvePrivateKey, email: str = ""
    ) -> None:
        """Use the account of `key`, which is registered at its first use."""
        self._account = acme.AcmeAccount(directory, key, email)
        self._turns = asyncio.Semaphore(acme.MOST_AT_ONCE)

    async def issue(
        self,
        csr_der: bytes,
        domains: Sequence[str],  # noqa: ARG002 - the request names them
        txt: TxtRecords,
    ) -> Chain:
        """Return a certificate for exactly `domains`; see `Issuer`."""
        loop = asyncio.get_running_loop()

        def publish(proofs: Sequence[acme.ChallengeProof]) -> None:
            """Publish from the thread of `acme.order`."""
            made = txt.publish({each.domain: each.value for each in proofs})
            asyncio.run_coroutine_threadsafe(made, loop).result(_PUBLISH_SECONDS)

        try:
            with _translating_authority_errors():
                async with self._turns:
                    chain = await acme.order(self._account, csr_der, "dns-01", publish)
        finally:
            await txt.withdraw()
        return _parsed(chain)

    async def revoke(self, certificate_der: bytes, reason: str | None) -> None:
        """Revoke a certificate that this authority issued; see `Issuer`."""
        code = _REASONS.get(reason or "unspecified", 0)
        with _translating_authority_errors():
            async with self._turns:
                await acme.revoke(self._account, certificate_der, code)


@contextmanager
def _translating_authority_errors() -> Iterator[None]:
    try:
        yield
    except acme.AcmeRefused as refusal:
        raise _refused(refusal) from None
    except acme.AcmeUnreachable as error:
        raise AuthorityUnreachable(str(error)) from None


def _refused(refusal: acme.AcmeRefused) -> AuthorityRefused:
    codes = [_code(each) for each in refusal.domains]
    domains = [
        RecordCheck(each.domain, code, each.detail)
        for each, code in zip(refusal.domains, codes, strict=True)
    ]
    return AuthorityRefused(codes[0] if codes else CA_REFUSED, str(refusal), domains)


def _code(problem: acme.DomainProblem) -> Reason:
    if any(words in problem.detail.lower() for words in _MISSING):
        return CNAME_MISSING
    return _CODES.get(problem.code, CA_REFUSED)


def _parsed(chain: str) -> Chain:
    try:
        certificate, *issuers = x509.load_pem_x509_certificates(chain.encode())
        return Chain(
            certificate.public_bytes(Encoding.DER),
            tuple(
                each.public_bytes(Encoding.DER) for each in issuers if each.subject != each.issuer
            ),
        )
    except UNREADABLE:
        raise AuthorityUnreachable("it answered with no certificate") from None


@dataclass(frozen=True, slots=True)
class Proofs:
    """How accounts of this install prove that they control their domains."""

    grants: DomainGrants
    zone: str
    """The platform's zone, which CNAMEs of challenges point to, without a final dot; empty if the
    platform has none."""
    checks_dns: bool
    """True if the issuing authority reads a TXT record for each domain."""

    def is_hosted(self, tx: Connection, certificate: Certificate, domain: str) -> bool:
        """Return True if a domain of a certificate needs no DNS record from the domain's owner.

        The operator must have granted the domain to the account. If the authority reads the DNS,
        the domain must also be in the platform's zone, since the platform can answer for no other.
        """
        if self.checks_dns and not (self.zone and is_within(domain, [self.zone])):
            return False
        handle = handle_of(tx, certificate.account_id)
        return self.grants.allow(domain, certificate.account_id, handle)
