"""Let web pages of listed other origins, and of no others, read ``/v1`` and ``/v2``.

Only ``GET``, ``HEAD`` and their preflights are allowed. ``Access-Control-Allow-Credentials`` is
never sent, so pages cannot use cookies; they send bearers from ``GET /v2/token``. The sign-in page
and the endpoints that issue tokens by ``POST`` allow no other origin. (Fetch standard, "HTTP
extensions".) ``entrepot dev``, which has no sign-in, refuses all requests of other origins.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from ipaddress import IPv6Address, ip_address
from typing import Final

from cloudcore.errors import AccessDenied
from cloudcore.serving.asgi import Message, Receive, Scope, Send, header_values
from cloudcore.serving.dispatch import Application

_READS: Final = ("GET", "HEAD")
_PLANES: Final = (b"/v1", b"/v2")
_SIGN_IN: Final = b"/v1/oauth/"
_ALLOWED_HEADERS: Final = b"Authorization, Accept, Range, If-Match, If-None-Match"
_EXPOSED_HEADERS: Final = (
    b"Accept-Ranges, Content-Length, Content-Range, Docker-Content-Digest,"
    b" Docker-Distribution-API-Version, ETag, Link, OCI-Filters-Applied, Retry-After, Warning,"
    b" WWW-Authenticate, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id"
)
_PREFLIGHT_SECONDS: Final = 600


class CrossOriginReads:
    """Wraps a plane, and lets web pages of listed origins read from the plane.

    For other origins, the response has no CORS headers, but ``Vary`` for caches.
    """

    def __init__(self, plane: Application, origins: Collection[str]) -> None:
        """Let pages of `origins`, such as ``https://app.example.com``, read from `plane`."""
        self._plane = plane
        self._origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight, or pass the request on and add CORS headers to the response."""
        if scope["type"] != "http" or not _is_readable(scope):
            await self._plane(scope, receive, send)
            return
        origin = _only(scope, b"origin")
        listed = origin if origin in self._origins else None
        if scope["method"] == "OPTIONS" and listed is not None:
            method = _only(scope, b"access-control-request-method") or b""
            if method.decode("latin-1") in _READS:
                await _allow(scope, send, listed)
                return
        if scope["method"] not in _READS:
            await self._plane(scope, receive, send)
            return
        headers = [(b"vary", b"Origin")]
        if listed is not None:
            headers.append((b"access-control-allow-origin", listed))
            headers.append((b"access-control-expose-headers", _EXPOSED_HEADERS))

        async def send_readable(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self._plane(scope, receive, send_readable)


async def _allow(scope: Scope, send: Send, origin: bytes) -> None:
    """Answer a preflight from a listed origin."""
    headers = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", b"GET, HEAD"),
        (b"access-control-allow-headers", _ALLOWED_HEADERS),
        (b"access-control-max-age", b"%d" % _PREFLIGHT_SECONDS),
        (b"vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
        (b"x-request-id", scope["state"]["request_id"].encode()),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _is_readable(scope: Scope) -> bool:
    """Return True if the path is ``/v1``, ``/v2`` or below, but not an endpoint of the sign-in."""
    path = scope.get("raw_path") or scope["path"].encode()
    is_api = path in _PLANES or path.startswith(tuple(plane + b"/" for plane in _PLANES))
    return is_api and not path.startswith(_SIGN_IN)


def _only(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of a header that occurs exactly once, else None."""
    values = header_values(scope, name)
    return values[0] if len(values) == 1 else None


Refuse = Callable[[Scope, Send, AccessDenied], Awaitable[None]]

_AUTHORITY: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{0,5})?")
_MAX_SHOWN: Final = 100


class LoopbackGuard:
    """Wraps an application; admits requests for loopback hosts, except from other sites' pages."""

    def __init__(
        self, application: Application, refuse: Refuse, allowed_hosts: Iterable[str] = ()
    ) -> None:
        """Treat `allowed_hosts` as loopback hosts too; a host without a port matches any port.

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
        """Return why a request must be refused, or None to admit it."""
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
    """Return text from a request, shortened and escaped; ``none`` for empty text."""
    return repr(text[:_MAX_SHOWN]) if text else "none"
