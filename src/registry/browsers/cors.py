"""Allow cross-origin reads of ``/v1`` and ``/v2`` by web pages of origins that an operator lists.

Only ``GET``, ``HEAD`` and their preflights are allowed. ``Access-Control-Allow-Credentials`` is
never sent, so pages cannot use cookies; they send bearers from ``GET /v2/token``. The sign-in page
and the endpoints that issue tokens by ``POST`` allow no other origin. (Fetch standard, "HTTP
extensions".)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from cloudcore.serving.body import Message, Receive, Scope, Send
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
    """Wraps a plane, and lets pages of some origins read from it.

    Pages of other origins get the response without CORS headers, but with ``Vary`` for caches.
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
        is_listed = origin in self._origins
        if scope["method"] == "OPTIONS":
            method = _only(scope, b"access-control-request-method")
            if is_listed and method is not None and method.decode("latin-1") in _READS:
                assert origin is not None
                await _allow(scope, send, origin)
            else:
                await self._plane(scope, receive, send)
            return
        if scope["method"] not in _READS:
            await self._plane(scope, receive, send)
            return
        headers = [(b"vary", b"Origin")]
        if is_listed and origin is not None:
            headers.append((b"access-control-allow-origin", origin))
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
    """Return True if the path is in ``/v1`` or ``/v2``, and not part of the sign-in."""
    path = scope.get("raw_path") or scope["path"].encode()
    is_api = path in _PLANES or path.startswith(tuple(plane + b"/" for plane in _PLANES))
    return is_api and not path.startswith(_SIGN_IN)


def _only(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of a header that is given exactly once, else None."""
    values = [value for found, value in scope["headers"] if found == name]
    return values[0] if len(values) == 1 else None
