"""Check a certificate that its owner uploads, with its chain and its key."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from cloudcore.certificate.authority import fingerprint, microseconds, pem
from cloudcore.certificate.domains import check_domains
from cloudcore.certificate.keys import KeyAlgorithm, algorithm_of, public_der
from cloudcore.errors import InvalidInput

MOST_PEM: Final = 64 * 1024
"""Characters of each of the three."""


class Checked(NamedTuple):
    """An uploaded certificate that can be served."""

    domains: tuple[str, ...]
    key_algorithm: KeyAlgorithm
    certificate_pem: str
    """The certificate alone."""
    chain_pem: str
    """Its issuers in order, without the root."""
    fingerprint: str
    issued_at: int
    expires_at: int
    private_key_pem: bytes

    def __repr__(self) -> str:
        """Show no key."""
        return f"Checked({self.fingerprint})"


def check_upload(certificate_pem: str, chain_pem: str, private_key_pem: str, now: int) -> Checked:
    """Return what was uploaded, in the form in which it is kept.

    Raises:
        InvalidInput: it is no PEM, the key is not the certificate's, the chain is not in order, it
            is not valid now, or it names no domain.

    """
    certificates = _certificates(certificate_pem, "certificate_pem")
    if len(certificates) != 1:
        raise _refused("certificate_pem", "holds several; put those of its issuers into chain_pem")
    certificate = certificates[0]
    algorithm = algorithm_of(certificate.public_key())
    if algorithm is None:
        raise _refused(
            "certificate_pem", "has a key that is neither P-256, P-384, RSA 2048 or 4096"
        )
    _check_key(private_key_pem, certificate)
    chain = _certificates(chain_pem, "chain_pem") if chain_pem.strip() else []
    _check_order([certificate, *chain])
    expires_at = microseconds(certificate.not_valid_after_utc)
    issued_at = microseconds(certificate.not_valid_before_utc)
    if not issued_at <= now < expires_at:
        when = "has expired" if now >= expires_at else "is not valid yet"
        raise _refused("certificate_pem", when)
    return Checked(
        _domains(certificate),
        algorithm,
        pem(certificate),
        "".join(pem(each) for each in chain if each.subject != each.issuer),
        fingerprint(certificate),
        issued_at,
        expires_at,
        private_key_pem.encode(),
    )


def _certificates(text: str, field: str) -> list[x509.Certificate]:
    if len(text) > MOST_PEM:
        raise _refused(field, f"is longer than {MOST_PEM} characters")
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise _refused(field, "is no certificate in PEM") from None


def _check_key(text: str, certificate: x509.Certificate) -> None:
    if len(text) > MOST_PEM:
        raise _refused("private_key_pem", f"is longer than {MOST_PEM} characters")
    try:
        key = load_pem_private_key(text.encode(), None)
        own = public_der(key.public_key())
    except TypeError:
        raise _refused("private_key_pem", "is under a password; write it without") from None
    except (ValueError, AssertionError):
        raise _refused("private_key_pem", "is no private key in PEM") from None
    if own != public_der(certificate.public_key()):
        raise _refused("private_key_pem", "is not the key of certificate_pem")


def _check_order(certificates: list[x509.Certificate]) -> None:
    for number, (each, issuer) in enumerate(pairwise(certificates), 1):
        try:
            each.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature):
            before = "certificate_pem" if number == 1 else f"number {number - 1} of it"
            raise _refused(
                "chain_pem", f"is out of order: its number {number} did not issue {before}"
            ) from None


def _domains(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        raise _refused("certificate_pem", "names no domain (subjectAltName)") from None
    return check_domains(names.value.get_values_for_type(x509.DNSName))


def _refused(field: str, what: str) -> InvalidInput:
    return InvalidInput(f"{field}: it {what}", field=field, reason="invalid")
