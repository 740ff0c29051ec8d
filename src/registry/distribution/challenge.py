"""Write ``WWW-Authenticate``: the token endpoint and the scope to ask for (RFC 6750, distribution).

One header with every value quoted and no space after a comma, since clients parse it with regular
expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from cloudcore.serving.body import Scope
from registry.distribution.routing import realm_query


class Challenges:
    """Writes challenges with the registry's address as the client knows it."""

    def __init__(self, public_url: str = "", hosts: Sequence[str] = ()) -> None:
        """Write `public_url` into every challenge or, if it is empty, one of `hosts`.

        A request whose ``Host`` is one of `hosts` gets that one. Any other gets the first or, if
        there are none, the address of the socket: an unknown ``Host`` is not echoed, since a cache
        might serve the answer to other clients.
        """
        self._public = public_url.rstrip("/")
        self._hosts = tuple(host.lower() for host in hosts)

    def bearer(self, scope: Scope, token_scope: str = "", error: str = "") -> str:
        """Return the challenge for a request that needs a bearer with the scope `token_scope`."""
        base, host = self._address(scope)
        query = realm_query(scope.get("state", {}).get("mirror"))
        challenge = f'Bearer realm="{base}/v2/token{query}",service="{host}"'
        if token_scope:
            challenge += f',scope="{token_scope}"'
        if error:
            challenge += f',error="{error}"'
        return challenge

    def basic(self, scope: Scope) -> str:
        """Return the challenge of the token endpoint itself."""
        return f'Basic realm="{self._address(scope)[1]}"'

    def _address(self, scope: Scope) -> tuple[str, str]:
        """Return the base URL and the host of the registry to show to this client."""
        if self._public:
            return self._public, urlsplit(self._public).netloc
        host = _requested_host(scope)
        if host not in self._hosts:
            host = self._hosts[0] if self._hosts else _own_address(scope)
        return f"{scope.get('scheme', 'http')}://{host}", host


def _requested_host(scope: Scope) -> str:
    """Return the ``Host`` of a request in lower case, or ""."""
    for name, value in scope["headers"]:
        if name == b"host":
            host: str = value.decode("latin-1")
            return host.lower()
    return ""


def _own_address(scope: Scope) -> str:
    """Return the address and port of the socket that accepted the request."""
    address, port = scope.get("server") or ("localhost", None)
    bracketed = f"[{address}]" if ":" in address else address
    return bracketed if port is None else f"{bracketed}:{port}"
