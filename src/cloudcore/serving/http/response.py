"""Render response heads safely from ASGI messages, and the server's own refusals."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, NamedTuple

from cloudcore.serving.http.head import ALLOW, LENGTH, METHODS, PRINTABLE, TOKEN
from cloudcore.serving.planes import Plane

_PLAIN, _CONTENT_LENGTH, _CONNECTION, _DROPPED = range(4)
_KINDS = {
    b"content-length": _CONTENT_LENGTH,
    b"connection": _CONNECTION,
    b"transfer-encoding": _DROPPED,  # framing is the server's business
    b"keep-alive": _DROPPED,
}

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %s\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}

MAX_KNOWN_NAMES = 500


class HeaderNames(dict[bytes, tuple[bytes, int]]):
    """A cache of the header names that applications use.

    It maps a name to the start of its line and the kind of the header.
    """

    def __missing__(self, name: bytes) -> tuple[bytes, int]:
        """Add a new name; raise `ValueError` if it is invalid. Applications use few names."""
        if TOKEN.fullmatch(name) is None:
            raise ValueError(f"invalid header name {name!r}")
        entry = (name + b": ", _KINDS.get(name.lower(), _PLAIN))
        if len(self) < MAX_KNOWN_NAMES:
            self[name] = entry
        return entry


class Fields(NamedTuple):
    """The header fields in an application's ``http.response.start`` message."""

    block: bytes
    content_length: int | None
    closes: bool


def read_fields(headers: Iterable[tuple[bytes, bytes]], names: HeaderNames) -> Fields:
    """Separate the headers that concern framing from the other lines of a response's head.

    Raise `ValueError` if a name or value contains invalid characters.
    """
    lines: list[bytes] = []
    length: int | None = None
    closes = False
    for name, value in headers:
        start, kind = names[name]
        if not kind:  # _PLAIN, as most are
            lines += (start, value, b"\r\n")
        elif kind == _CONTENT_LENGTH:
            if LENGTH.fullmatch(value) is None:
                raise ValueError("invalid content-length")
            length = int(value)
        elif kind == _CONNECTION:
            closes = closes or b"close" in value.lower()
    block = b"".join(lines)
    if block.translate(None, PRINTABLE) != b"\r\n" * (len(lines) // 3):
        raise ValueError("control character in a response header")
    return Fields(block, length, closes)


def status_line(status: int) -> bytes:
    """Return the first line of a response."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


_METHOD_BYTES: Final = max(map(len, METHODS)) + 1
"""The longest method and the space behind it."""


def guess_method(data: bytes | bytearray) -> str:
    """Return the method of a possibly malformed request line, or "" if we do not know it."""
    return METHODS.get(bytes(data[:_METHOD_BYTES]).partition(b" ")[0], "")


def guess_path(data: bytes | bytearray) -> bytes:
    """Return the likely path of a possibly malformed request line."""
    line = bytes(data[:4096]).split(b"\n", 1)[0].split()
    target = line[1].split(b"?", 1)[0] if len(line) > 1 else b""
    _, scheme, rest = target.partition(b"://")
    return b"/" + rest.partition(b"/")[2] if scheme else target


def guess_host(data: bytes | bytearray) -> list[tuple[bytes, bytes]]:
    """Return the first ``Host`` field of a malformed or incomplete head in a list, or []."""
    for line in bytes(data).split(b"\n")[1:-1]:
        name, colon, value = line.partition(b":")
        if not line.strip():
            break
        if colon and name.strip().lower() == b"host":
            return [(b"host", value.strip())]
    return []


def refusal_response(
    status: int,
    message: str,
    plane: Plane,
    *,
    request_id: str,
    common: bytes = b"",
    bodiless: bool = False,
) -> tuple[bytes, int]:
    """Return (a complete response that ends the connection, the length of its body).

    The body has the error format of the request's `plane`.

    `common` are the header lines of every response; `bodiless` drops the body, for HEAD.
    """
    body = plane.refusal_body(status, message, request_id)
    lines = [
        b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode()),
        common,
        b"content-type: %s\r\ncontent-length: %d\r\n" % (plane.refusal_type, len(body)),
        b"x-request-id: %s\r\nconnection: close\r\n" % request_id.encode(),
    ]
    lines.append(plane.refusal_headers)
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append(b"allow: %s\r\n" % ALLOW)
    lines.append(b"\r\n")
    if bodiless:
        body = b""
    lines.append(body)
    return b"".join(lines), len(body)


def tls_refusal(common: bytes) -> tuple[bytes, int]:
    """Return (the response to a TLS hello, the length of its body).

    Clients that try TLS first recognize the plain ``HTTP/`` and continue without TLS.
    """
    body = b"This port speaks plain HTTP: use http://, or https:// of a proxy that ends TLS.\n"
    head = (
        b"HTTP/1.1 400 Bad Request\r\n%scontent-type: text/plain; charset=utf-8\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n"
    )
    return head % (common, len(body)) + body, len(body)
