"""Check what an authority has issued, before it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509

from cloudcore.certificate.authority import fingerprint, microseconds, pem
from cloudcore.certificate.issuer import CA_REFUSED, Chain, Refused
from cloudcore.certificate.keys import public_der
from cloudcore.certificate.unreadable import UNREADABLE


class Issued(NamedTuple):
    """A certificate that an authority has issued."""

    certificate: bytes
    """DER."""
    certificate_pem: str
    chain_pem: str
    """Its issuers in order, without the root."""
    fingerprint: str
    not_before: int
    """Authorities let it be some time, up to an hour, before the moment of the issue."""
    expires_at: int


def check_issued(chain: Chain, csr_der: bytes, domains: Sequence[str], now: int) -> Issued:
    """Return what an authority has issued for a signing request.

    Raises:
        Refused: it is not what was asked for.

    """
    wanted = x509.load_der_x509_csr(csr_der).public_key()
    try:
        certificate = x509.load_der_x509_certificate(chain.certificate)
        issuers = [x509.load_der_x509_certificate(each) for each in chain.issuers]
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, *UNREADABLE):
        raise Refused(CA_REFUSED, "what the authority issued is no certificate") from None
    found = {name.lower() for name in names.value.get_values_for_type(x509.DNSName)}
    if found != set(domains):
        raise Refused(CA_REFUSED, "what the authority issued is for other domains")
    if public_der(certificate.public_key()) != public_der(wanted):
        raise Refused(CA_REFUSED, "what the authority issued is for another key")
    expires_at = microseconds(certificate.not_valid_after_utc)
    if expires_at <= now:
        raise Refused(CA_REFUSED, "what the authority issued has expired")
    return Issued(
        chain.certificate,
        pem(certificate),
        "".join(pem(each) for each in issuers if each.subject != each.issuer),
        fingerprint(certificate),
        microseconds(certificate.not_valid_before_utc),
        expires_at,
    )
