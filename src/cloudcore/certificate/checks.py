"""Check certificates and requests from owners, and certificates from authorities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from cloudcore.certificate.authority import fingerprint, microseconds, pem
from cloudcore.certificate.certificate import KeyAlgorithm
from cloudcore.certificate.domains import check_domains
from cloudcore.certificate.issuer import CA_REFUSED, AuthorityRefused, Chain
from cloudcore.certificate.keys import (
    UNREADABLE,
    algorithm_of,
    is_cheap_to_verify,
    is_sound,
    load_private_key,
    public_der,
)
from cloudcore.errors import InvalidInput, invalid_field

MOST_REQUEST_PEM: Final = 48 * 1024
"""Maximum characters of a signing request; 100 domains of maximum length take 36,000."""
_DIGESTS: Final = (hashes.SHA256, hashes.SHA384, hashes.SHA512)


class SigningRequest(NamedTuple):
    """A checked signing request, as a certificate stores it."""

    csr: bytes
    """DER."""
    domains: tuple[str, ...]
    key_algorithm: KeyAlgorithm


def check_signing_request(
    text: str, domains: Sequence[str] | None, key_algorithm: KeyAlgorithm | None
) -> SigningRequest:
    """Parse and check a signing request in PEM.

    Authorities issue for exactly the names in a request, so these become the certificate's domains:
    the ``subjectAltName``, or the common name if there is none.

    Raise `InvalidInput` if it is not a request in PEM, is signed by another key or with SHA-1, has
    a key of an unsupported kind, or differs from `domains` or `key_algorithm` (None: any).
    """
    if len(text) > MOST_REQUEST_PEM:
        raise _refused("csr_pem", f"is longer than {MOST_REQUEST_PEM} characters")
    try:
        request = x509.load_pem_x509_csr(text.encode())
        key = request.public_key()
        algorithm = algorithm_of(key) if is_cheap_to_verify(key) else None
        digest = request.signature_hash_algorithm
        named = _names(request)
        is_own = algorithm is not None and request.is_signature_valid
    except UNREADABLE:
        raise _refused("csr_pem", "is no certificate signing request in PEM") from None
    if algorithm is None:
        raise _refused("csr_pem", "has a key that is neither P-256, P-384, RSA 2048 or 4096")
    if key_algorithm not in (None, algorithm):
        words = f"the key of csr_pem is {algorithm}, not {key_algorithm}"
        raise invalid_field("key_algorithm", words, "invalid")
    if not isinstance(digest, _DIGESTS):
        raise _refused("csr_pem", "is not signed with SHA-256, SHA-384 or SHA-512")
    if not is_own:
        raise _refused("csr_pem", "is not signed by its own key")
    if not named:
        raise _refused("csr_pem", "names no domain; put them into subjectAltName")
    found = check_domains(named)
    if domains is not None and set(check_domains(domains)) != set(found):
        words = f"csr_pem is for {', '.join(found)}; leave domains out, or name the same"
        raise invalid_field("domains", words, "invalid")
    return SigningRequest(request.public_bytes(Encoding.DER), found, algorithm)


def _names(request: x509.CertificateSigningRequest) -> list[str]:
    """Return the names in a request.

    Raise `InvalidInput` if one is not a DNS name or ends in a dot, if the common name is missing
    from the alternative names, or if there are several common names and no alternative names.
    """
    common = [
        str(each.value)
        for each in request.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        if each.value
    ]
    try:
        extension = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        if len(common) > 1:
            raise _refused(
                "csr_pem", "has several common names; put them into subjectAltName"
            ) from None
        return common
    names = list(extension.value)
    if not all(isinstance(each, x509.DNSName) for each in names):
        raise _refused("csr_pem", "names something else than domains in subjectAltName")
    found = [str(each.value) for each in names]
    if any(each.endswith(".") for each in found):
        raise _refused(
            "csr_pem", "has a name that ends in a dot, which authorities refuse (RFC 5280 4.2.1.6)"
        )
    if not {each.lower() for each in common} <= {each.lower() for each in found}:
        raise _refused("csr_pem", "has a common name that is not in its subjectAltName too")
    return found


MOST_PEM: Final = 64 * 1024
"""Maximum characters of a certificate or a chain."""
MOST_KEY_PEM: Final = 4 * 1024
"""Maximum characters of a key; an RSA 4096 key has 3,300."""
MOST_ISSUERS: Final = 10
"""Maximum certificates in a chain; each costs the verification of a signature."""


class CheckedUpload(NamedTuple):
    """An uploaded certificate that can be served: its stored fields, without the key."""

    domains: tuple[str, ...]
    key_algorithm: KeyAlgorithm
    certificate_pem: str
    """The certificate without its chain."""
    chain_pem: str
    """The issuers in order, without the root."""
    fingerprint: str
    issued_at: int
    expires_at: int


def check_upload(
    certificate_pem: str,
    chain_pem: str,
    private_key_pem: str,
    now: int,
    domains: Sequence[str] | None = None,
) -> CheckedUpload:
    """Check an uploaded certificate, its chain and its key; return the stored form.

    Raise `InvalidInput` if

    - a text is not PEM, or the key does not belong to the certificate;
    - the chain is out of order, or contains a certificate that is not an authority's;
    - a certificate is not valid now, or is signed with SHA-1;
    - the certificate names no domain, or lacks one of `domains`.
    """
    certificates = _certificates(certificate_pem, "certificate_pem")
    if len(certificates) != 1:
        raise _refused("certificate_pem", "holds several; put those of its issuers into chain_pem")
    certificate = certificates[0]
    try:
        algorithm = algorithm_of(certificate.public_key())
    except UNREADABLE:
        algorithm = None
    if algorithm is None:
        raise _refused(
            "certificate_pem", "has a key that is neither P-256, P-384, RSA 2048 or 4096"
        )
    _check_key(private_key_pem, certificate)
    chain = _certificates(chain_pem, "chain_pem") if chain_pem.strip() else []
    _check_signature(certificate, "certificate_pem", "it")
    # Roots are not checked: clients use their own copies.
    issuers = [(number, each) for number, each in enumerate(chain, 1) if not _is_root(each)]
    for number, issuer in issuers:
        _check_signature(issuer, "chain_pem", f"its number {number}")
    _check_order([certificate, *chain])
    issued_at, expires_at = _validity(certificate, "certificate_pem")
    if not issued_at <= now < expires_at:
        when = "has expired" if now >= expires_at else "is not valid yet"
        raise _refused("certificate_pem", when)
    for number, issuer in issuers:
        _check_issuer(issuer, number, now)
    named = _domains(certificate)
    for domain in check_domains(domains) if domains is not None else ():
        if domain not in named:
            raise _refused("certificate_pem", f"is not for {domain}, but for {', '.join(named)}")
    return CheckedUpload(
        named,
        algorithm,
        pem(certificate),
        "".join(pem(each) for _, each in issuers),
        fingerprint(certificate),
        issued_at,
        expires_at,
    )


def _certificates(text: str, field: str) -> list[x509.Certificate]:
    if len(text) > MOST_PEM:
        raise _refused(field, f"is longer than {MOST_PEM} characters")
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except UNREADABLE:
        raise _refused(field, "is no certificate in PEM") from None


def _check_key(text: str, certificate: x509.Certificate) -> None:
    if len(text) > MOST_KEY_PEM:
        raise _refused("private_key_pem", f"is longer than {MOST_KEY_PEM} characters")
    key = load_private_key(text.encode())
    if key is None:
        if "ENCRYPTED" in text:
            raise _refused("private_key_pem", "is under a password; write it without")
        raise _refused("private_key_pem", "is no private key of RSA or of a curve in PEM")
    if public_der(key.public_key()) != public_der(certificate.public_key()):
        raise _refused("private_key_pem", "is not the key of certificate_pem")
    if isinstance(key, rsa.RSAPrivateKey) and not is_sound(key):
        raise _refused(
            "private_key_pem",
            "is no sound key: its numbers do not fit each other, or its primes"
            " are not each half as long as the modulus",
        )


def _check_order(certificates: list[x509.Certificate]) -> None:
    if len(certificates) > MOST_ISSUERS + 1:
        raise _refused("chain_pem", f"has more than {MOST_ISSUERS} certificates")
    for number, (each, issuer) in enumerate(pairwise(certificates), 1):
        _check_issuer_key(issuer, number)
        try:
            each.verify_directly_issued_by(issuer)
        except (*UNREADABLE, InvalidSignature):
            before = "certificate_pem" if number == 1 else f"number {number - 1} of it"
            raise _refused(
                "chain_pem", f"is out of order: its number {number} did not issue {before}"
            ) from None


def _check_issuer_key(issuer: x509.Certificate, number: int) -> None:
    try:
        is_usual = is_cheap_to_verify(issuer.public_key())
    except UNREADABLE:
        is_usual = False
    if not is_usual:
        raise _refused("chain_pem", f"has an issuer (number {number}) with a key of unusual size")


def _check_issuer(issuer: x509.Certificate, number: int, now: int) -> None:
    """Raise `InvalidInput` if clients would refuse issuer `number` of the chain."""
    begins_at, ends_at = _validity(issuer, "chain_pem")
    if not begins_at <= now < ends_at:
        raise _refused("chain_pem", f"has an issuer (number {number}) that is not valid now")
    try:
        found = issuer.extensions.get_extension_for_class(x509.BasicConstraints)
        is_authority = found.value.ca
    except (x509.ExtensionNotFound, *UNREADABLE):
        is_authority = False
    if not is_authority:
        raise _refused("chain_pem", f"has an issuer (number {number}) that is no authority")


def _validity(certificate: x509.Certificate, field: str) -> tuple[int, int]:
    """Return (begin, end) of the time in which a certificate is valid."""
    try:
        return (
            microseconds(certificate.not_valid_before_utc),
            microseconds(certificate.not_valid_after_utc),
        )
    except UNREADABLE:  # a year 0
        raise _refused(field, "has a certificate whose dates cannot be read") from None


def _check_signature(certificate: x509.Certificate, field: str, what: str) -> None:
    try:
        digest = certificate.signature_hash_algorithm
    except UNREADABLE:
        raise _refused(field, "has a signature of an unknown kind") from None
    if isinstance(digest, (hashes.SHA1, hashes.MD5)):
        words = f"{what} is signed with {digest.name}, which clients refuse"
        raise invalid_field(field, words, "invalid")


def _is_root(certificate: x509.Certificate) -> bool:
    try:
        return certificate.subject == certificate.issuer
    except UNREADABLE:
        raise _refused("chain_pem", "has a certificate whose names cannot be read") from None


def _domains(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, *UNREADABLE):
        raise _refused("certificate_pem", "names no domain (subjectAltName)") from None
    return check_domains(names.value.get_values_for_type(x509.DNSName))


def _refused(field: str, what: str) -> InvalidInput:
    return invalid_field(field, f"it {what}", "invalid")


class Issued(NamedTuple):
    """A certificate that an authority has issued."""

    certificate: bytes
    """DER."""
    certificate_pem: str
    chain_pem: str
    """The issuers in order, without the root."""
    fingerprint: str
    not_before: int
    """When the validity begins; authorities backdate it by up to an hour."""
    expires_at: int


def check_issued(chain: Chain, csr_der: bytes, domains: Sequence[str], now: int) -> Issued:
    """Check the certificate that an authority has issued for a signing request; return it.

    Raise `AuthorityRefused` if it is malformed or expired, its key is not that of the request, or
    its names are not `domains`.
    """
    wanted = x509.load_der_x509_csr(csr_der).public_key()
    try:
        certificate = x509.load_der_x509_certificate(chain.certificate)
        issuers = [x509.load_der_x509_certificate(each) for each in chain.issuers]
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        key = certificate.public_key()
        issued = Issued(
            chain.certificate,
            pem(certificate),
            "".join(pem(each) for each in issuers if each.subject != each.issuer),
            fingerprint(certificate),
            microseconds(certificate.not_valid_before_utc),
            microseconds(certificate.not_valid_after_utc),
        )
    except (x509.ExtensionNotFound, *UNREADABLE):
        raise AuthorityRefused(CA_REFUSED, "what the authority issued is no certificate") from None
    found = {name.lower() for name in names.value.get_values_for_type(x509.DNSName)}
    if found != set(domains):
        raise AuthorityRefused(CA_REFUSED, "what the authority issued is for other domains")
    if algorithm_of(key) is None or public_der(key) != public_der(wanted):
        raise AuthorityRefused(CA_REFUSED, "what the authority issued is for another key")
    if issued.expires_at <= now:
        raise AuthorityRefused(CA_REFUSED, "what the authority issued has expired")
    return issued
