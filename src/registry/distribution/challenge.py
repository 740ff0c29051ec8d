"""``WWW-Authenticate``: where a token is to be had, and for what (RFC 6750, token specification).

One header, every value quoted, no space after a comma: clients parse it by pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from cloudcore.serving.body import Scope


class Challenges:
    """Writes challenges, and knows under which name the client reached us."""

    def __init__(self, public_url: str = "", hosts: Sequence[str] = ()) -> None:
        """Name one `public_url`, or else that of the `hosts` which a request names.

        A request that names no such host is told the first of them or, without any, the address
        it came to: never what it says itself, which a cache might repeat to others (G34).
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
        if host not in self._hosts:
            host = self._hosts[0] if self._hosts else _own_address(scope)
        return f"{scope.get('scheme', 'http')}://{host}", host


def _requested_host(scope: Scope) -> str:
    """Return the host a request names, in lower case."""
    for name, value in scope["headers"]:
        if name == b"host":
            host: str = value.decode("latin-1")
            return host.lower()
    return ""


def _own_address(scope: Scope) -> str:
    """Return the address of the socket that a request came to."""
    address, port = scope.get("server") or ("localhost", None)
    bracketed = f"[{address}]" if ":" in address else address
    return bracketed if port is None else f"{bracketed}:{port}"
