"""The files of the certificate of a server's own names: readable by the server's user alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from cloudcore.acme.key_files import key_pem, write_private
from cloudcore.own_certificate.places import own_certificate
from cloudcore.serving.tls_files import STAND_IN, TlsFilesError, TlsNotYetValidError, load_tls

_STAND_IN_LIFE: Final = timedelta(days=3650)
_MOST_COMMON_NAME: Final = 64


def prepare(folder: Path, name: str, now: float) -> bool:
    """Make the folder; return True if it has a certificate of an authority that can be served.

    Otherwise write one of our own, which no client trusts, so that the server can listen. `name`
    is that of the server, `now` the Unix time in seconds.

    Raises:
        TlsNotYetValidError: there is one, and the clock is behind; it stays for when it is set.
        OSError: the folder cannot be written.

    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = own_certificate(folder)
    try:
        return not load_tls(files, now).is_stand_in
    except TlsNotYetValidError:
        raise
    except TlsFilesError:
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(files.certificate, key_pem(key) + _stand_in(name, key, now))
        return False


def names_in(pem: bytes) -> set[str]:
    """Return the host names and addresses that the first certificate in a PEM file is of."""
    first = x509.load_pem_x509_certificates(pem)[0]
    names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    return {*names.get_values_for_type(x509.DNSName), *addresses}


def load_account_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """Return the key of the account at the authority; make it if there is none."""
    path = folder / "account.pem"
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(path, key_pem(key))
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _stand_in(name: str, key: ec.EllipticCurvePrivateKey, now: float) -> bytes:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, STAND_IN),
            x509.NameAttribute(NameOID.COMMON_NAME, name[:_MOST_COMMON_NAME]),
        ]
    )
    begins = datetime.fromtimestamp(now, UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + _STAND_IN_LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
