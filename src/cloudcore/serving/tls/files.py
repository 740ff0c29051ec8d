"""The certificate files of a server: read and check them, reload them, warn before they expire.

Error messages name the file and the problem.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from cloudcore.serving.counters import Count, CountedEvent, Gauge, count_nothing
from cloudcore.serving.tls.paths import TlsFiles
from cloudcore.serving.tls.validation import Validations

STAND_IN: Final = "stands in for a certificate that is not there yet"
"""Organization in a certificate that the server signs itself, to be able to listen."""
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2 with forward secrecy and authenticated encryption. TLS 1.3 has no others."""


class TlsFilesError(Exception):
    """A certificate cannot be served; the message says why, and what to do."""


class TlsNotYetValidError(TlsFilesError):
    """The certificate is not valid yet, probably because this machine's clock is behind."""


class TlsIdentity(NamedTuple):
    """A certificate that is ready to be served."""

    context: ssl.SSLContext
    begins_at: float
    """Unix time in seconds."""
    expires_at: float
    """Unix time in seconds."""
    version: object
    """Version of the files before they were read: see `TlsFiles.find_version`."""
    is_stand_in: bool = False
    """True if no authority has signed it, so that clients refuse it."""


def load_tls(files: TlsFiles, now: float) -> TlsIdentity:
    """Load the certificate in `files` for new connections; `now` is the Unix time in seconds.

    Raise `TlsFilesError` if a file cannot be read, certificate and key do not belong together, or
    the certificate is not valid now.
    """
    version = files.find_version()
    certificates = _certificates(files.certificate)
    _check_key(files, certificates)
    first = certificates[0]
    expires_at = first.not_valid_after_utc.timestamp()
    begins_at = first.not_valid_before_utc.timestamp()
    if now >= expires_at:
        raise TlsFilesError(
            f"the certificate in {files.certificate} expired at {_shown(expires_at)}; put a renewed"
            " one there, with its key"
        )
    if now < begins_at:
        raise TlsNotYetValidError(
            f"the certificate in {files.certificate} is valid from {_shown(begins_at)} on, and now"
            f" it is {_shown(now)}; set this machine's clock, or wait"
        )
    try:
        context = server_context()
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:  # changed since, or a key too short for OpenSSL
        reason = getattr(error, "reason", None) or str(error)
        raise TlsFilesError(
            f"{files.certificate} and {files.key} cannot be served: {reason}"
        ) from None
    return TlsIdentity(context, begins_at, expires_at, version, _is_stand_in(first))


def server_context() -> ssl.SSLContext:
    """Return a context for a server's connections, without a certificate.

    TLS 1.2 and 1.3, HTTP/1.1 by ALPN; clients are not asked for certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # Who shuts only its own side down still gets its answer; HTTP tells whether a body is whole.
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    context.verify_mode = ssl.CERT_NONE
    return context


def _is_stand_in(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    except ValueError:  # a subject that OpenSSL serves, and that cannot be read here
        return False
    return any(each.value == STAND_IN for each in found)


def _certificates(file: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(file, "certificate"))
    except (ValueError, x509.InvalidVersion):
        raise TlsFilesError(
            f"{file} holds no certificate in PEM: its first line is -----BEGIN CERTIFICATE-----"
        ) from None


def _check_key(files: TlsFiles, certificates: list[x509.Certificate]) -> None:
    data = _read(files.key, "key")
    try:
        key = load_pem_private_key(data, None)
    except TypeError:  # so says cryptography of a key under a password
        raise TlsFilesError(
            f"the key in {files.key} is under a password, and nobody is there to type it; write it"
            " without: openssl pkey -in FILE -out OTHER"
        ) from None
    except ValueError:
        raise TlsFilesError(
            f"{files.key} holds no private key in PEM: its first line is"
            " -----BEGIN PRIVATE KEY-----"
        ) from None
    except UnsupportedAlgorithm as error:
        raise TlsFilesError(
            f"the key in {files.key} is of a kind that cannot be served: {error}"
        ) from None
    own = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    matches = [_public_key(each) == own for each in certificates]
    if matches[0]:
        return
    if any(matches):
        raise TlsFilesError(
            f"the key in {files.key} belongs to certificate {matches.index(True) + 1} of"
            f" {files.certificate}; the server's own must be the first, then its issuer's"
        )
    raise TlsFilesError(
        f"the key in {files.key} is not that of the certificate in {files.certificate}; name the"
        " two that were made together"
    )


def _public_key(certificate: x509.Certificate) -> bytes | None:
    """Return the public key, or None if its kind is unknown; that of an issuer may be."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _read(file: Path, what: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise TlsFilesError(
            f"the {what} {file} cannot be read: {error.strerror or error}; it must exist, and be"
            " readable for the user that serves"
        ) from None


def _no_password() -> str:
    """Return no password, as OpenSSL would otherwise ask for one at the terminal."""
    return ""


def _shown(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


logger = logging.getLogger("cloudcore.serving")

DAY: Final = 24 * 3600
WARNING_SECONDS: Final = 14 * DAY
WARNING_SHARE: Final = 4
"""Warnings begin in the last quarter of a certificate's life, but at most `WARNING_SECONDS` before
its end."""
_NONE_REFUSED: Final = object()
"""A value that equals no version; the version of missing files is None."""
FAILED_HANDSHAKE: Final = "tls.handshake_failed"
HANDSHAKE_EVENT: Final = CountedEvent(
    FAILED_HANDSHAKE,
    "entrepot_tls_failed_handshakes",
    "TLS handshakes that failed: the client does not trust the certificate, or is too old.",
)


class CertificateKeeper(Protocol):
    """Writes and renews the files of the certificate that is served."""

    @property
    def validations(self) -> Validations | None:
        """Return the proofs for an authority, or None if no authority validates this server."""

    async def keep(self, count: Count) -> None:
        """Renew the files in time, until cancelled; runs in one worker."""


class ServedTls:
    """The certificate for new connections. Connections that are already open keep theirs."""

    def __init__(
        self,
        files: TlsFiles,
        identity: TlsIdentity,
        count: Count = count_nothing,
        validations: Validations | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Serve `identity`, which was loaded from `files`; `clock` is the Unix time in seconds.

        `validations` are shown to an authority that requests them. `identity` may be outdated: a
        worker that replaces a dead one gets what its parent loaded.
        """
        self._files = files
        self._identity = identity
        self._count = count
        self._clock = clock
        self._version = identity.version
        self._refused_version = _NONE_REFUSED
        """Version of the files, if the previous check found that they cannot be served."""
        self._told_at = 0.0
        self.validations = validations
        self.must_reload = False
        """True to load the files again at the next check, changed or not."""

    @property
    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection."""
        return self._identity.context

    def note_failure(self, reason: str) -> None:
        """Count a failed handshake."""
        self._count(FAILED_HANDSHAKE, 1)
        logger.debug("a TLS handshake failed: %s", reason)

    def check(self) -> None:
        """Load the files again if they have changed; warn of a certificate that expires soon.

        Files that cannot be served are logged only if the next check finds the same: a renewal
        writes two files, and this check may fall in between. The previous certificate stays in use.
        """
        version = self._files.find_version()
        if self.must_reload or version != self._version:
            self._load(version)
        else:
            self._refused_version = _NONE_REFUSED
        self._warn()

    def gauge(self) -> Gauge:
        """Return the time until the certificate expires, or 0 while a stand-in is served."""
        left = 0.0 if self._identity.is_stand_in else self._identity.expires_at - self._clock()
        return Gauge(
            "entrepot_tls_certificate_expiry_seconds",
            "Time until the certificate that is served expires; below 0: it has expired.",
            round(left),
        )

    def _load(self, version: object) -> None:
        is_final = self.must_reload or version == self._refused_version
        self.must_reload = False
        try:
            self._identity = load_tls(self._files, self._clock())
        except TlsFilesError as error:
            self._refused_version = version
            if is_final:
                self._version = version
                logger.error("the certificate served so far stays: %s", error)  # noqa: TRY400 - it says all
            return
        self._version, self._told_at = version, 0.0
        logger.info("serving the certificate in %s to new connections", self._files.certificate)

    def _warn(self) -> None:
        now, identity = self._clock(), self._identity
        left = identity.expires_at - now
        life = identity.expires_at - identity.begins_at
        if left > min(WARNING_SECONDS, life / WARNING_SHARE) or now - self._told_at < DAY:
            return
        self._told_at = now
        file = self._files.certificate
        if left <= 0:
            logger.error("the certificate in %s has expired: clients refuse it; renew it", file)
        else:
            logger.warning(
                "the certificate in %s expires in %d days and %d hours; renew it, it is then"
                " served without a restart",
                file,
                left // DAY,
                left % DAY // 3600,
            )
