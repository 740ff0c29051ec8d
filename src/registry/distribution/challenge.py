"""``WWW-Authenticate``: where a token is to be had, and for what (RFC 6750, token specification).

One header, every value quoted, no space after a comma: clients parse it by pattern.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from registry.distribution.body import Scope

_HOST: Final = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\.){0,10}[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?"
    r"(?::[0-9]{1,5})?|\[[0-9a-f:.]{2,45}\](?::[0-9]{1,5})?",
    re.IGNORECASE,
)


class Challenges:
    """Writes challenges, and knows under which name the client reached us."""

    def __init__(self, public_url: str = "", hosts: Sequence[str] = ()) -> None:
        """Name one `public_url`, or else the `hosts` that requests may name.

        With neither, whatever well-formed host a request names is told to come back there: enough
        for one machine, but behind a cache or a proxy that passes any ``Host`` on, name them.
        """
        self._public = public_url.rstrip("/")
        self._hosts = tuple(host.lower() for host in hosts)

    def bearer(self, scope: Scope, asked: str = "", error: str = "") -> str:
        """Return the challenge of a request that needs a bearer for the scope `asked`."""
        base, host = self._address(scope)
        challenge = f'Bearer realm="{base}/v2/token",service="{host}"'
        if asked:
            challenge += f',scope="{asked}"'
        if error:
            challenge += f',error="{error}"'
        return challenge

    def basic(self, scope: Scope) -> str:
        """Return the challenge of the token endpoint itself."""
        return f'Basic realm="{self._address(scope)[1]}"'

    def _address(self, scope: Scope) -> tuple[str, str]:
        """Return the base URL of the registry for this client, and its host."""
        if self._public:
            return self._public, urlsplit(self._public).netloc
        host = _requested_host(scope)
        if self._hosts and host.lower() not in self._hosts:
            host = self._hosts[0]
        return f"{scope.get('scheme', 'http')}://{host}", host


def _requested_host(scope: Scope) -> str:
    """Return the host a request names; the server's own address when it names none to repeat."""
    for name, value in scope["headers"]:
        if name == b"host":
            host: str = value.decode("latin-1")
            if _HOST.fullmatch(host):
                return host
            break
    address, port = scope.get("server") or ("localhost", None)
    bracketed = f"[{address}]" if ":" in address else address
    return bracketed if port is None else f"{bracketed}:{port}"
