"""The certificate that ``entrepot serve`` obtains for its own names."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

from cloudcore.acme.client import Directory
from cloudcore.certificate.embedded import EmbeddedAuthority, write_server_certificate
from cloudcore.clock import system_clock, uuid7
from cloudcore.db.opening import open_database
from cloudcore.keyring import load_keyring
from cloudcore.own_certificate.orders import TLS_ALPN, CertificateOrder, acme_certificate
from cloudcore.own_certificate.paths import own_certificate, root_file
from cloudcore.own_certificate.renewal import CertificateSubject, OwnCertificate, prepare
from cloudcore.serving.tls.files import TlsNotYetValidError
from registry.settings.settings import Settings
from registry.settings.texts import PREFIX, SettingsError


def prepare_own_certificate(settings: Settings) -> tuple[OwnCertificate, str]:
    """Return the renewer of the certificate, and a note for the operator (empty: nothing to say).

    Raise `SettingsError` if the certificate's folder cannot be written, or the clock is behind.
    """
    folder = settings.acme_folder or settings.own_folder
    assert folder is not None
    try:
        if settings.acme_folder is None:
            return _prepare_here(settings, folder)
        return _prepare_acme(settings, folder)
    except TlsNotYetValidError as error:
        raise SettingsError(str(error)) from None
    except OSError as error:
        raise SettingsError(
            f"the server's certificate is kept beside the root key, in {folder}, which cannot be"
            f" written: {error.strerror}; name a root_key_file in a folder that can"
        ) from None


def _prepare_acme(settings: Settings, folder: Path) -> tuple[OwnCertificate, str]:
    acme = settings.acme
    url, setting = acme.tls_acme_directory, f"{PREFIX}TLS_ACME"
    wanted = CertificateOrder(
        acme.names,
        Directory(url, f"{setting}_DIRECTORY", acme.tls_acme_roots),
        folder,
        "http-01" if acme.http_address else TLS_ALPN,
        acme.tls_acme_email,
        setting,
    )
    own = acme_certificate(wanted)
    if prepare(folder, wanted.names[0], time.time()):
        return own, ""
    return own, (
        f"There is no certificate of {', '.join(wanted.names)} yet; until it is there, clients are"
        f" shown one that they refuse. It is ordered from {url}, which must reach {wanted.reach}."
    )


def _prepare_here(settings: Settings, folder: Path) -> tuple[OwnCertificate, str]:
    """Issue the certificate if it is due; return its renewer, and a note for the operator."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    subject = CertificateSubject(
        settings.certificate_names, own_certificate(folder), "the authority of this install"
    )
    own = OwnCertificate(subject, partial(_issue, settings, folder))
    if own.is_due:
        asyncio.run(_issue(settings, folder))
    return own, (
        f"Its certificate is of this install's own authority: let clients trust {root_file(folder)}"
    )


async def _issue(settings: Settings, folder: Path) -> None:
    """Issue the certificate. This opens the database itself: the server may have it open too."""
    database = open_database(settings.database)
    try:
        url = (settings.certificate_url or settings.url_of("certificate")).rstrip("/")
        keyring = load_keyring(settings.root_key)
        embedded = EmbeddedAuthority(database, system_clock, uuid7, keyring, url)
        await write_server_certificate(database, embedded, settings.certificate_names, folder)
    finally:
        await database.close()
