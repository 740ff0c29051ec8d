"""Check a certificate signing request (CSR, RFC 2986): its owner made the key, and keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from cloudcore.certificate.domains import check_domains
from cloudcore.certificate.keys import algorithm_of, is_light
from cloudcore.certificate.rules import KeyAlgorithm
from cloudcore.certificate.unreadable import UNREADABLE
from cloudcore.errors import InvalidInput

MOST_REQUEST_PEM: Final = 48 * 1024
"""Characters of a request; 100 of the longest domains take 36,000."""
_DIGESTS: Final = (hashes.SHA256, hashes.SHA384, hashes.SHA512)


class SigningRequest(NamedTuple):
    """A request that an authority can be given."""

    der: bytes
    domains: tuple[str, ...]
    key_algorithm: KeyAlgorithm


def check_signing_request(
    text: str, domains: Sequence[str] | None, key_algorithm: KeyAlgorithm | None
) -> SigningRequest:
    """Return a request in PEM, read.

    Authorities issue for all names of a request and for no others, so they are the certificate's
    domains: those of ``subjectAltName``, or the common name if there are none.

    Raises:
        InvalidInput: it is no request in PEM, not signed by its own key or with SHA-1, has a key of
            another kind (or than `key_algorithm`), or names other than `domains`.

    """
    if len(text) > MOST_REQUEST_PEM:
        raise _refused(f"is longer than {MOST_REQUEST_PEM} characters")
    try:
        request = x509.load_pem_x509_csr(text.encode())
        key = request.public_key()
        algorithm = algorithm_of(key) if is_light(key) else None
        digest = request.signature_hash_algorithm
        named = _names(request)
        is_own = algorithm is not None and request.is_signature_valid
    except UNREADABLE:
        raise _refused("is no certificate signing request in PEM") from None
    if algorithm is None:
        raise _refused("has a key that is neither P-256, P-384, RSA 2048 or 4096")
    if key_algorithm not in (None, algorithm):
        raise InvalidInput(
            f"key_algorithm: the key of csr_pem is {algorithm}, not {key_algorithm}",
            field="key_algorithm",
            reason="invalid",
        )
    if not isinstance(digest, _DIGESTS):
        raise _refused("is not signed with SHA-256, SHA-384 or SHA-512")
    if not is_own:
        raise _refused("is not signed by its own key")
    if not named:
        raise _refused("names no domain; put them into subjectAltName")
    found = check_domains(named)
    if domains is not None and set(check_domains(domains)) != set(found):
        raise InvalidInput(
            f"domains: csr_pem is for {', '.join(found)}; leave domains out, or name the same",
            field="domains",
            reason="invalid",
        )
    return SigningRequest(request.public_bytes(Encoding.DER), found, algorithm)


def _names(request: x509.CertificateSigningRequest) -> list[str]:
    """Return the names of a request.

    Raises:
        InvalidInput: one is not of DNS or ends in a dot, the common name is not among the others,
            or there are several and no others.

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
            raise _refused("has several common names; put them into subjectAltName") from None
        return common
    names = list(extension.value)
    if not all(isinstance(each, x509.DNSName) for each in names):
        raise _refused("names something else than domains in subjectAltName")
    found = [str(each.value) for each in names]
    if any(each.endswith(".") for each in found):
        raise _refused("has a name that ends in a dot, which authorities refuse (RFC 5280 4.2.1.6)")
    if not {each.lower() for each in common} <= {each.lower() for each in found}:
        raise _refused("has a common name that is not in its subjectAltName too")
    return found


def _refused(why: str) -> InvalidInput:
    return InvalidInput(f"csr_pem: it {why}", field="csr_pem", reason="invalid")
