"""Run an application until a signal stops it, for ``dev`` and ``serve``.

``serve`` writes its URL to a file in the data folder, for commands without its options. The file
stays when the server stops, since the next server will most likely have the same URL.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from cloudcore.db.base import CommitMark
from cloudcore.db.refusals import is_read_only
from cloudcore.errors import Unavailable
from cloudcore.serving.dispatch import Dispatcher
from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.logs import configure_logging
from cloudcore.serving.processes.server import ListenError, run
from cloudcore.serving.tls.files import CertificateKeeper, TlsFilesError
from registry.composition.main import Edition, Registry
from registry.composition.metrics import APPLICATION_EVENTS
from registry.composition.planes import planes_of
from registry.settings.settings import Settings
from registry.settings.texts import CONSOLE, SettingsError

_FILE: Final = "served-url"
_MAX_CHARACTERS: Final = 500
_log = logging.getLogger(__name__)


def check_disk(settings: Settings) -> None:
    """Check that the disk of the data folder is writable, before workers fail because it is not.

    A read-only disk that has only the blobs is accepted: they can still be pulled.

    Raise `Unavailable` if the data folder is on a read-only disk. If the database is there too,
    opening it has already failed.
    """
    if is_read_only(settings.data):
        raise Unavailable(
            f"the disk that holds {settings.data} is read-only; look in the system's log whether"
            " the disk has failed, and mount it writable"
        )


def listening_problem(
    host: str, port: int = 0, kind: socket.SocketKind = socket.SOCK_STREAM
) -> str:
    """Return why this process cannot listen at an address, or ""; port 0 is a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with closing(socket.socket(family, kind)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind((host, port))
    except (OSError, UnicodeError) as error:  # UnicodeError: the text cannot be a host name
        return getattr(error, "strerror", None) or str(error)
    return ""


def load_before_fork(settings: Settings, edition: Edition) -> None:
    """Import what workers need before the fork, so that workers share the memory."""
    if settings.workers > 1:
        asyncio.run(Registry(settings, edition).rehearse())


def serve_application(
    settings: Settings,
    create: Callable[[Settings, CommitMark], Dispatcher],
    on_ready: Callable[[str], None],
    keeper: CertificateKeeper | None = None,
) -> int:
    """Serve the application that `create` makes in each worker; return the exit status.

    `keeper` renews the server's own certificate, if it has one.

    Raise `SettingsError` if the TLS files cannot be used, or nothing can listen on an address.
    """
    configure_logging()
    http = None if keeper is None else settings.acme.http_address
    try:
        return run(
            partial(create, settings, CommitMark()),
            settings.host,
            settings.port,
            planes=planes_of(settings),
            application_events=APPLICATION_EVENTS,
            workers=settings.workers,
            limits=ServerLimits(
                request_seconds=settings.limits.request_seconds,
                leaving_seconds=settings.limits.drain_seconds,
            ),
            metrics_bind=settings.metrics_address,
            on_ready=on_ready,
            tls=settings.tls_files,
            keeper=keeper,
            validation=(http, settings.urls) if http is not None else None,
            more_ports=[settings.s3_port] if settings.s3_port else (),
        )
    except TlsFilesError as error:
        raise SettingsError(str(error)) from None
    except ListenError as error:
        if error.errno != errno.EADDRINUSE:
            raise SettingsError(
                f"nothing can listen on {error.filename}: {error.strerror}; name an address of this"
                " machine (--host, --metrics, --tls-acme-http), and for a port below 1024 see"
                " docs/how-to/tls.md"
            ) from None
        raise SettingsError(
            f"another process listens on {error.filename}; "
            "name another port (--port, --metrics, --s3-port, --tls-acme-http), or 0 for a free one"
        ) from None


def write_url(settings: Settings, url: str) -> None:
    """Save the URL at which clients reach the server; if that fails, log a warning."""
    try:
        _path(settings).write_text(f"{url}\n")
    except OSError as error:
        _log.warning("cannot write the URL of the registry to %s: %s", _path(settings), error)


def read_url(settings: Settings) -> str:
    """Return the URL for clients: as configured, else as saved by `write_url`, else the default."""
    if has_client_url(settings):
        return settings.url
    try:
        noted = _path(settings).read_text()[:_MAX_CHARACTERS].strip()
    except (OSError, ValueError):
        return settings.url
    return noted if noted.startswith("http") and noted.isprintable() else settings.url


def find_console(settings: Settings) -> str:
    """Return the URL of the console."""
    return f"{settings.own_urls.get(CONSOLE) or read_url(settings)}/console"


def has_client_url(settings: Settings) -> bool:
    """Return True if the settings contain a URL for clients."""
    return bool(settings.public_url or settings.hosts)


def _path(settings: Settings) -> Path:
    return settings.data / _FILE
