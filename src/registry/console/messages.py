"""Requests of browsers and the answers to them, as plain values over ASGI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from cloudcore.errors import InvalidInput, PayloadTooLarge
from cloudcore.identity.oauth_forms import MAX_FORM_BYTES, parse_form, values_of
from cloudcore.serving.body_budget import BODIES

Scope = Any
Receive = Any
Send = Any

HTML: Final = "text/html; charset=utf-8"
_MAX_FIELDS: Final = 32


@dataclass(frozen=True, slots=True)
class Request:
    """What a browser asks for."""

    scope: Scope
    method: str
    path: str
    """As it was sent: nothing that our paths are made of needs an escape."""
    query: Mapping[str, str]
    form: Mapping[str, str]
    """Of a POST."""
    cookies: Mapping[str, str]
    request_id: str

    def header(self, name: bytes) -> str | None:
        """Return a header's only value; None also where there are several."""
        values = values_of(self.scope["headers"], name)
        return values[0].decode("latin-1") if len(values) == 1 else None

    @property
    def host(self) -> str:
        """Return the host and port that the browser takes us for."""
        return self.header(b"host") or ""


@dataclass(slots=True)
class Response:
    """What a browser is answered."""

    status: int
    body: bytes = b""
    content_type: str = HTML
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    """Values of ``Set-Cookie`` by the cookie's name."""

    async def send(self, send: Send, *, bodiless: bool) -> None:
        """Send it; `bodiless` for HEAD."""
        headers = {"content-type": self.content_type, "content-length": str(len(self.body))}
        pairs = [*(headers | self.headers).items()]
        pairs += [("set-cookie", cookie) for cookie in self.cookies.values()]
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
            }
        )
        await send({"type": "http.response.body", "body": b"" if bodiless else self.body})


def redirect(location: str) -> Response:
    """Return an answer that sends the browser to a page, by GET."""
    return Response(303, headers={"location": location})


async def read_request(scope: Scope, receive: Receive) -> Request:
    """Return the request of a scope, with its form.

    Raises:
        InvalidInput: its form is none.
        PayloadTooLarge: or is too large.

    """
    method = scope["method"]
    headers = scope["headers"]
    form: Mapping[str, str] = {}
    if method == "POST":
        with BODIES.hold() as hold:
            body = await _read_body(hold.metered(receive))
        form = parse_form(values_of(headers, b"content-type"), body) if body else {}
    query = scope["query_string"].decode("latin-1")
    try:
        parameters = dict(parse_qsl(query, max_num_fields=_MAX_FIELDS, errors="replace"))
    except ValueError:
        raise InvalidInput("there are too many parameters") from None
    return Request(
        scope=scope,
        method="GET" if method == "HEAD" else method,
        path=(scope.get("raw_path") or scope["path"].encode()).decode("latin-1"),
        query=parameters,
        form=form,
        cookies=_cookies(values_of(headers, b"cookie")),
        request_id=scope["state"]["request_id"],
    )


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInput("the form did not arrive whole")
        body += message.get("body", b"")
        if len(body) > MAX_FORM_BYTES:
            raise PayloadTooLarge("the form is too large")
        if not message.get("more_body"):
            return bytes(body)


def _cookies(headers: list[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in b";".join(headers).decode("latin-1").split(";"):
        name, _, value = pair.partition("=")
        # The first is that of the longest path (RFC 6265 §5.4): ours, not one for all of the host.
        found.setdefault(name.strip(), value.strip())
    return found
