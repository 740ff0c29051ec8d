"""Protect an application without sign-in: admit programs of this machine, but not web pages.

A browser on this machine sends requests to a loopback address for any page that it shows. With DNS
rebinding, a page uses its own host name and can read the responses; without, its forms can still
write. Browsers reveal the page in ``Host`` (RFC 9110 §7.2), ``Origin`` (RFC 6454 §7) and
``Sec-Fetch-Site`` (Fetch Metadata).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv6Address, ip_address
from typing import Final

from cloudcore.errors import AccessDenied
from cloudcore.serving.body import Receive, Scope, Send
from cloudcore.serving.dispatch import Application

Refuse = Callable[[Scope, Send, AccessDenied], Awaitable[None]]

_AUTHORITY: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{0,5})?")
_MAX_SHOWN: Final = 100


class LoopbackGuard:
    """Wraps an application; admits requests to loopback hosts, but none from other sites' pages."""

    def __init__(
        self, application: Application, refuse: Refuse, allowed_hosts: Iterable[str] = ()
    ) -> None:
        """Treat `allowed_hosts` as loopback hosts too; one without a port allows any port.

        `refuse` sends the error in the format that clients of the application expect.
        """
        self._application = application
        self._refuse = refuse
        self._allowed = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with 403."""
        reason = self._reason_to_refuse(scope)
        if reason is None:
            await self._application(scope, receive, send)
        else:
            await self._refuse(scope, send, AccessDenied(reason))

    def _reason_to_refuse(self, scope: Scope) -> str | None:
        """Return why a request must be refused, or None."""
        hosts = []
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.decode("latin-1"))
            elif name == b"origin":
                origin = value.decode("latin-1")
                scheme, _, authority = origin.partition("://")
                if scheme not in ("http", "https") or not self._is_trusted(authority):
                    return (
                        f"a web page of {_shown(origin)} may not use this registry: it has no "
                        "sign-in, so it answers pages of this machine only"
                    )
            elif name == b"sec-fetch-site" and value.lower() == b"cross-site":
                return (
                    "a web page of another site may not use this registry: it has no sign-in; "
                    "type the address yourself"
                )
        if len(hosts) == 1 and self._is_trusted(hosts[0]):
            return None
        return (
            f"this registry has no sign-in, so it answers under loopback names only, not "
            f"{_shown(', '.join(hosts))}: use localhost or 127.0.0.1, or name the host in "
            "ENTREPOT_ALLOWED_HOSTS"
        )

    def _is_trusted(self, authority: str) -> bool:
        """Return True if a host, with or without a port, is a loopback host or an allowed one."""
        authority = authority.lower()
        found = _AUTHORITY.fullmatch(authority)
        if found is None:
            return False
        return is_loopback(found[1]) or not self._allowed.isdisjoint((authority, found[1]))


def is_loopback(host: str) -> bool:
    """Return True if a host in lower case is a loopback host (RFC 6761 §6.3, RFC 1122 §3.2.1.3)."""
    name = host.removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _shown(text: str) -> str:
    """Return text from a request, shortened and escaped for an error message."""
    return repr(text[:_MAX_SHOWN]) if text else "none"
