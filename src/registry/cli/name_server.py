"""See whether the name server of the zone can listen, before any worker begins."""

from __future__ import annotations

import socket
from contextlib import closing

from registry.setting_texts import SettingsError
from registry.settings import Settings


def check_name_server(settings: Settings) -> None:
    """Try the address of `dns_listen`, over UDP and TCP, if one is set.

    Raises:
        SettingsError: another process has it, or this one may not.

    """
    address = settings.certificates.dns_address
    if address is None:
        return
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with closing(socket.socket(family, kind)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                sock.bind(address)
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise SettingsError(
                    f"dns_listen: nothing can listen on {settings.certificates.dns_listen}:"
                    f" {reason}; name an address of this machine that no other name server has,"
                    " and for a port below 1024 see docs/tls.md"
                ) from None
