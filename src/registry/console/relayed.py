"""Answers that ``/v1`` gives to the browser itself: files that are too large to hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

from litestar.response import Response
from litestar.types import Receive, Scope, Send

from registry.console.page_request import PageRequest

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
"""What pages may load."""
UPLOADING: Final = f"{POLICY}; connect-src 'self'"
"""Of a page whose script sends files."""
_REPLACED: Final = (b"content-disposition", b"cache-control", b"expires")
"""Headers that an object is stored with, and that are the console's own here."""
_OF_BODY: Final = (b"content-length", b"content-type", b"transfer-encoding")


class Relayed(Response[None]):
    """An object of a bucket, on its way down or up, with the token of the session."""

    def __init__(self, page: PageRequest, method: str, path: str, file_name: str = "") -> None:
        """Send `path` to the browser as a file of this name (GET), or its body there (PUT)."""
        super().__init__(None)
        self._page = page
        self._method = method
        self._path = path
        self._file_name = file_name

    def to_asgi_response(  # type: ignore[override]
        self, *_: object, **_options: object
    ) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """Return the ASGI application that passes the bytes on."""
        is_get = self._method == "GET"
        fields = (b"range", b"if-range") if is_get else _OF_BODY
        method = self._page.scope["method"] if is_get else self._method  # perhaps HEAD

        async def relay(_scope: Scope, _receive: Receive, send: Send) -> None:
            await self._page.api.relay(
                method,
                self._path,
                self._page.receive,
                send,  # type: ignore[arg-type] # of any ASGI server
                fields,
                self._answered,
            )

        return relay

    def _answered(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Let the browser save the bytes, whatever they are, and neither show nor cache them."""
        if self._method == "GET":
            named = f"attachment; filename*=UTF-8''{quote(self._file_name, safe='')}"
            headers[:] = [pair for pair in headers if pair[0].lower() not in _REPLACED]
            headers.append((b"content-disposition", named.encode()))
