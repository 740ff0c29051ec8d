"""Certificates of names that tests make up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cloudcore.certificate.authority import AuthorityUrls, issue, new_issuing, new_root, pem
from cloudcore.clock import system_clock
from cloudcore.key_pairs import key_pem, new_private_key

_PLACES: Final = AuthorityUrls("http://ca.example.com/issuer", "http://ca.example.com/crl")
DAY: Final = timedelta(days=1)


def self_signed(
    folder: Path, name: str, *, begins: timedelta = -DAY, ends: timedelta = DAY
) -> tuple[Path, Path]:
    """Write a certificate of a host name, which is its own root; return it and its key.

    It is of this machine's loopback address and name too. `begins` and `ends` are counted from now.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    loopback = x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name), *loopback]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(key_pem(key))
    return certificate, private


def uploaded(name: str, now: int) -> dict[str, str]:
    """Return the body of an upload of a certificate, valid from `now` in microseconds."""
    root = new_root("tests", now)
    issuing = new_issuing(root, "tests", _PLACES, now)
    key = new_private_key("ecdsa-p256")
    made = issue(issuing, (name,), key.public_key(), _PLACES, now)
    return {
        "certificate_pem": pem(made),
        "chain_pem": pem(issuing.certificate) + pem(root.certificate),
        "private_key_pem": key_pem(key).decode(),
    }


class Issuer:
    """An authority of a test, whose certificates are renewed as real ones are."""

    def __init__(self, folder: Path) -> None:
        """Write the root to `folder`, for clients to trust."""
        now = system_clock()
        self._root = new_root("tests", now)
        self._issuing = new_issuing(self._root, "tests", _PLACES, now)
        self.root = folder / "root.pem"
        self.root.write_text(pem(self._root.certificate))

    def write(self, certificate: Path, key: Path, name: str) -> int:
        """Replace the files of a certificate of a host name; return its serial number."""
        private = new_private_key("ecdsa-p256")
        made = issue(self._issuing, (name,), private.public_key(), _PLACES, system_clock())
        for path, text in (
            (key, key_pem(private).decode()),
            (certificate, pem(made) + pem(self._issuing.certificate)),
        ):
            renewed = path.with_suffix(".renewed")
            renewed.write_text(text)
            renewed.replace(path)
        return made.serial_number
