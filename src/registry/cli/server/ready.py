"""``entrepot ready``: ask the server on this machine whether it can serve, for health checks."""

from __future__ import annotations

import argparse
import http.client
import ssl
from typing import Final

from cloudcore.command_failures import CommandFailure
from cloudcore.commands.records import write_now
from registry.cli.server.options import settings_of
from registry.settings.settings import Settings
from registry.settings.texts import is_every_address

_SECONDS: Final = 4
_MOST_BYTES: Final = 4096


def run_ready(options: argparse.Namespace) -> None:
    """Print what ``/readyz`` of the local server says.

    Raise `CommandFailure` if the server does not answer, or is not ready.
    """
    settings = settings_of(options)
    host = settings.host
    if is_every_address(host):
        host = "::1" if ":" in host else "127.0.0.1"
    connection = _connection(settings, host)
    try:
        connection.request("GET", "/readyz", headers={"Host": "localhost"})
        answer = connection.getresponse()
        said = answer.read(_MOST_BYTES).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise CommandFailure(f"no answer from {host} port {settings.port}: {error}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise CommandFailure(f"the server is not ready ({answer.status}): {said}")
    write_now(f"{said}\n")


def _connection(settings: Settings, host: str) -> http.client.HTTPConnection:
    if settings.tls_files is None:
        return http.client.HTTPConnection(host, settings.port, timeout=_SECONDS)
    # The certificate is of the name that clients use, not of this address, and nothing secret is
    # sent: it may even have expired.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, settings.port, timeout=_SECONDS, context=context)
