"""Order the certificate for a server's own names, by ACME."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from cloudcore.acme.client import AcmeAccount, AcmeUnreachable, ChallengeProof, Directory, order
from cloudcore.files import replace_file
from cloudcore.key_pairs import key_pem, signing_request
from cloudcore.own_certificate.paths import own_certificate
from cloudcore.own_certificate.renewal import CertificateSubject, OwnCertificate, load_account_key
from cloudcore.serving.tls.paths import TlsFiles
from cloudcore.serving.tls.validation import Validations, proof_file, token_file

TLS_ALPN: Final = "tls-alpn-01"
_IDENTIFIER: Final = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.31")
"""``id-pe-acmeIdentifier`` (RFC 8737 §3)."""
_LIFE: Final = timedelta(days=1)


class CertificateOrder(NamedTuple):
    """An order: the host names for a server's certificate, and the authority that issues it."""

    names: tuple[str, ...]
    directory: Directory
    folder: Path
    """Folder of the certificate's files; see `paths.own_folder`."""
    challenge: str = TLS_ALPN
    """``tls-alpn-01`` or ``http-01``."""
    email: str = ""
    setting: str = ""
    """The environment variable that sets `names`, for error messages."""

    @property
    def reach(self) -> str:
        """Return words for the port and the names that the authority must be able to reach."""
        port = "443" if self.challenge == TLS_ALPN else "80"
        return f"port {port} of {', '.join(self.names)} ({self.challenge})"

    @property
    def proofs(self) -> Path:
        """Return the folder of the proofs; it exists only while an authority checks them."""
        return self.folder / "proofs"

    @property
    def files(self) -> TlsFiles:
        """Return the certificate and key files that the server uses."""
        return own_certificate(self.folder)


def acme_certificate(wanted: CertificateOrder) -> OwnCertificate:
    """Return the object that obtains and renews a certificate by ACME."""
    url, setting = wanted.directory.url, wanted.setting
    subject = CertificateSubject(wanted.names, wanted.files, url, wanted.reach, setting)
    return OwnCertificate(
        subject, partial(_obtain, wanted), Validations(wanted.proofs, wanted.names)
    )


async def _obtain(wanted: CertificateOrder) -> None:
    """Order a certificate, prove control of the names, and write it where the server reads it.

    Raise `AcmeRefused` or `AcmeUnreachable` if that fails, so that the old certificate stays;
    `OSError` if a file cannot be written.
    """
    with _alone(wanted.folder):
        account = AcmeAccount(wanted.directory, load_account_key(wanted.folder), wanted.email)
        key = ec.generate_private_key(ec.SECP256R1())
        publish = partial(_publish, wanted.proofs, wanted.challenge)
        try:
            csr = signing_request(key, wanted.names)
            chain = await order(account, csr, wanted.challenge, publish)
        finally:
            _withdraw(wanted.proofs)
        replace_file(wanted.files.certificate, key_pem(key) + chain.encode())


def _publish(folder: Path, kind: str, proofs: Sequence[ChallengeProof]) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    for proof in proofs:
        if kind == TLS_ALPN:
            replace_file(proof_file(folder, proof.domain), _validation(proof))
        else:
            replace_file(token_file(folder, proof.token), proof.value.encode())


def _withdraw(folder: Path) -> None:
    if folder.is_dir():
        for file in folder.iterdir():
            file.unlink(missing_ok=True)
        folder.rmdir()


def _validation(proof: ChallengeProof) -> bytes:
    """Return a key and a certificate, in PEM, that prove control of a name (RFC 8737 §3)."""
    key = ec.generate_private_key(ec.SECP256R1())
    digest = hashlib.sha256(proof.value.encode()).digest()
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(proof.domain)]), critical=True)
        # An OCTET STRING of 32 bytes, in DER.
        .add_extension(x509.UnrecognizedExtension(_IDENTIFIER, b"\x04\x20" + digest), critical=True)
        .sign(key, hashes.SHA256())
    )
    return key_pem(key) + made.public_bytes(Encoding.PEM)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock `folder`, so that no other process, such as a replaced server, orders meanwhile.

    Raise `AcmeUnreachable` if another process is ordering.
    """
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AcmeUnreachable("another process of this machine orders it now") from None
        yield
    finally:
        os.close(descriptor)
