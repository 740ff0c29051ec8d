"""Certificates and signing requests that can be opened, but of which some part cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from cloudcore.certificate.checks import check_signing_request, check_upload
from cloudcore.certificate.keys import new_private_key
from cloudcore.errors import InvalidInput
from cloudcore.key_pairs import key_pem
from cloudcore.wire import moment_of

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
NAMES: Final = x509.SubjectAlternativeName.oid
ODD: Final = {
    "x400Address": x509.UnrecognizedExtension(NAMES, bytes.fromhex("3004 a302 3000")),
    "no names": x509.UnrecognizedExtension(NAMES, bytes.fromhex("0500")),
    "TLS feature 46": x509.UnrecognizedExtension(x509.TLSFeature.oid, bytes.fromhex("3003 02012e")),
}


def request_of(
    *common: str, names: x509.ExtensionType | None = None, key: ec.EllipticCurvePrivateKey
) -> str:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each) for each in common])
    builder = x509.CertificateSigningRequestBuilder(subject)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    made = new_private_key("ecdsa-p256")
    assert isinstance(made, ec.EllipticCurvePrivateKey)
    return made


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_extensions_that_cannot_be_read_are_the_senders_fault(
    key: ec.EllipticCurvePrivateKey, odd: x509.UnrecognizedExtension
) -> None:
    with pytest.raises(InvalidInput, match="csr_pem"):
        check_signing_request(request_of(names=odd, key=key), None, None)
    nobody = x509.Name([])
    certificate = (
        x509.CertificateBuilder(nobody, nobody, key.public_key(), 1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(odd, critical=False)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(Encoding.PEM).decode()
    with pytest.raises(InvalidInput, match="certificate_pem"):
        check_upload(text, "", key_pem(key).decode(), moment_of(NOW))


def test_a_common_name_of_bits_is_the_senders_fault(key: ec.EllipticCurvePrivateKey) -> None:
    request = x509.load_pem_x509_csr(request_of("abc", key=key).encode())
    spelled = request.public_bytes(Encoding.DER).replace(b"\x0c\x03abc", b"\x03\x03\x00bc")
    text = x509.load_der_x509_csr(spelled).public_bytes(Encoding.PEM).decode()
    with pytest.raises(InvalidInput, match="csr_pem"):
        check_signing_request(text, None, None)


def test_names_that_authorities_refuse_are_refused_at_once(key: ec.EllipticCurvePrivateKey) -> None:
    dotted = x509.SubjectAlternativeName([x509.DNSName("a.corp.example.")])
    with pytest.raises(InvalidInput, match="ends in a dot"):
        check_signing_request(request_of(names=dotted, key=key), None, None)
    # An order of ACME is for the first common name alone.
    with pytest.raises(InvalidInput, match="several common names"):
        check_signing_request(request_of("a.corp.example", "b.corp.example", key=key), None, None)
    one = check_signing_request(request_of("a.corp.example", key=key), None, None)
    assert one.domains == ("a.corp.example",)
