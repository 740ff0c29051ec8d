"""The certificate of a worker: replaced while it runs, with a warning before it expires."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from typing import Final, Protocol

from cloudcore.serving.tls_files import TlsFilesError, TlsIdentity, load_tls
from cloudcore.serving.tls_paths import TlsFiles
from cloudcore.serving.tls_validation import Validations
from cloudcore.serving.watched import Count, CountedEvent, Gauge, count_nothing

logger = logging.getLogger("cloudcore.serving")

DAY: Final = 24 * 3600
WARNING_SECONDS: Final = 14 * DAY
WARNING_SHARE: Final = 4
"""A certificate is told of in the last quarter of its life, and not before `WARNING_SECONDS`."""
_NONE_REFUSED: Final = object()
"""Equal to no version; that of missing files is None."""
FAILED_HANDSHAKE: Final = "tls.handshake_failed"
HANDSHAKE_EVENT: Final = CountedEvent(
    FAILED_HANDSHAKE,
    "entrepot_tls_failed_handshakes",
    "TLS handshakes that failed: the client does not trust the certificate, or is too old.",
)


class CertificateKeeper(Protocol):
    """Writes the files of the certificate that is served, and renews them."""

    @property
    def validations(self) -> Validations | None:
        """Return what an authority may look for, or None if it never does."""
        ...

    async def keep(self, count: Count) -> None:
        """Renew the files in time, until cancelled; runs in one worker."""
        ...


class ServedTls:
    """The certificate for new connections. Those that are open keep theirs."""

    def __init__(
        self,
        files: TlsFiles,
        identity: TlsIdentity,
        count: Count = count_nothing,
        validations: Validations | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Serve `identity`, which was loaded from `files`; `clock` is the Unix time in seconds.

        `validations` are shown to an authority that looks for them. `identity` may be of long ago:
        a worker that takes a dead one's place gets what its parent loaded.
        """
        self._files = files
        self._identity = identity
        self._count = count
        self._clock = clock
        self._version = identity.version
        self._refused_version = _NONE_REFUSED
        """Of the files if they could not be served at the check before."""
        self._told_at = 0.0
        self.validations = validations
        self.is_asked = False
        """Set to load the files again at the next check, changed or not."""

    @property
    def context(self) -> ssl.SSLContext:
        """Return the certificate for a new connection."""
        return self._identity.context

    def note_failure(self, reason: str) -> None:
        """Count a handshake that failed."""
        self._count(FAILED_HANDSHAKE, 1)
        logger.debug("a TLS handshake failed: %s", reason)

    def check(self) -> None:
        """Load the files again if they have changed; warn of a certificate that expires soon.

        What cannot be served is logged if it is still there at the next check: a renewal writes
        two files, and this check may fall between them. The certificate before it stays.
        """
        version = self._files.find_version()
        if self.is_asked or version != self._version:
            self._load(version)
        else:
            self._refused_version = _NONE_REFUSED
        self._warn()

    def gauge(self) -> Gauge:
        """Return the time until the certificate expires; 0 while another one stands in for it."""
        left = 0.0 if self._identity.is_stand_in else self._identity.expires_at - self._clock()
        return Gauge(
            "entrepot_tls_certificate_expiry_seconds",
            "Time until the certificate that is served expires; below 0: it has expired.",
            round(left),
        )

    def _load(self, version: object) -> None:
        is_final = self.is_asked or version == self._refused_version
        self.is_asked = False
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
