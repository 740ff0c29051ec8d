"""What of an uploaded certificate and its issuers is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from cloudcore.certificate.authority import pem
from cloudcore.certificate.keys import private_pem
from cloudcore.certificate.uploads import check_upload
from cloudcore.errors import InvalidInput

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
KEYS: Final = [rsa.generate_private_key(65537, 2048) for _ in range(3)]
SHA256_RSA: Final = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"
SHA1_RSA: Final = SHA256_RSA[:-1] + b"\x05"
LIVES: Final = {"begins": NOW - timedelta(days=1), "ends": NOW + timedelta(days=1)}


def made(
    number: int,
    *,
    begins: datetime,
    ends: datetime,
    is_sha1: bool,
    is_authority: bool,
) -> x509.Certificate:
    """Return the certificate of a number: the leaf, its issuer, and the root."""
    issuer = min(number + 1, 2)

    def name(of: int) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(of))])

    certificate = (
        x509.CertificateBuilder()
        .subject_name(name(number))
        .issuer_name(name(issuer))
        .public_key(KEYS[number].public_key())
        .serial_number(number + 1)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("up.example.com")]), False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), True)
        .sign(KEYS[issuer], hashes.SHA256())
    )
    if not is_sha1:
        return certificate
    # The library signs with SHA-1 no more, so the certificate only says that it is.
    said = certificate.public_bytes(Encoding.DER).replace(SHA256_RSA, SHA1_RSA)
    return x509.load_der_x509_certificate(said)


def check(**changes: dict[str, Any]) -> None:
    """Check an upload of which some have other fields: `leaf`, `issuer` or `root`."""
    chain = []
    for number, name in enumerate(("leaf", "issuer", "root")):
        fields = {"is_sha1": False, "is_authority": number > 0, **LIVES}
        chain.append(pem(made(number, **{**fields, **changes.get(name, {})})))
    now = int(NOW.timestamp()) * 1_000_000
    found = check_upload(chain[0], "".join(chain[1:]), private_pem(KEYS[0]).decode(), now)
    assert found.chain_pem == chain[1]


OLD: Final = {"begins": NOW - timedelta(days=9), "ends": NOW - timedelta(days=1)}
LATER: Final = {"begins": NOW + timedelta(days=1), "ends": NOW + timedelta(days=9)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"leaf": {"is_sha1": True}}, "certificate_pem: it is signed with sha1"),
        ({"issuer": {"is_sha1": True}}, "chain_pem: its number 1 is signed with sha1"),
        ({"issuer": OLD}, "chain_pem: it has an issuer (number 1) that is not valid now"),
        ({"issuer": LATER}, "chain_pem: it has an issuer (number 1) that is not valid now"),
        (
            {"issuer": {"is_authority": False}},
            "chain_pem: it has an issuer (number 1) that is no authority",
        ),
    ],
)
def test_what_clients_refuse_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        check(**changes)
    assert raised.value.message.startswith(words)


def test_of_a_root_nothing_is_asked_as_clients_have_their_own() -> None:
    check()
    check(root={"is_authority": False, **OLD})
