"""The head of a request: bounded, checked strictly, then parsed by httptools.

httptools alone takes obsolete line folding, a missing or doubled ``Host``, HTTP/0.9 and
unbounded heads; a second reader downstream that sees such a message differently is how
requests are smuggled (RFC 9112 §11.2). Here every doubt is a refusal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import httptools

from registry.serving.framing import BodyFraming, ChunkedBody, CountedBody
from registry.serving.limits import ServerLimits

METHODS = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}
ALLOW = b", ".join(METHODS)

VERSIONS = {b"HTTP/1.1": "1.1", b"HTTP/1.0": "1.0"}

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=-]*(?::[0-9]*)?|\[[0-9A-Fa-f:.]+\](?::[0-9]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_TARGET = re.compile(rb"[\x21\x22\x24-\x7e]+")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?]*)(/[^?]*)?(\?.*)?")

_PRINTABLE = bytes(code for code in range(256) if code == 9 or (code >= 32 and code != 127))
"""Everything that may stand in a head besides the CRLF that ends its lines."""

_MEANINGFUL = frozenset(
    (b"host", b"content-length", b"transfer-encoding", b"expect", b"connection")
)


class HeadError(Exception):
    """A request head that must be refused with `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(slots=True)
class RequestHead:
    """A request head that passed every check."""

    method: str
    http_version: str
    path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    host: bytes | None = None
    framing: BodyFraming | None = None
    content_length: int | None = None
    expects_continue: bool = False
    keep_alive: bool = True


@dataclass(slots=True)
class HeadReader:
    """Parses the heads of one connection, one after the other."""

    limits: ServerLimits
    _headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    _meaningful: list[tuple[bytes, bytes]] = field(default_factory=list)
    _parser: httptools.HttpRequestParser | None = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one field (called by httptools)."""
        name = name.lower()
        self._headers.append((name, value))
        if name in _MEANINGFUL:
            self._meaningful.append((name, value.strip(b" \t")))

    def read(self, head: bytes) -> RequestHead:
        """Check and parse a whole head, from the method to the empty line.

        Raises:
            HeadError: the head is malformed, ambiguous or asks for what we do not speak.

        """
        line = head[: head.index(b"\r\n")]
        method, target, version = check_request_line(line)
        check_lines(head, self.limits.header_count)
        self._headers = []
        self._meaningful = []
        self._parse(head)
        path, _, query = target.partition(b"?")
        request = RequestHead(method, version, path, query, self._headers)
        if self._meaningful:
            _interpret(request, self._meaningful)
        _settle(request, target)
        if request.framing is not None:
            # The parser now waits for a body that it will never be shown.
            self._parser = None
        return request

    def _parse(self, head: bytes) -> None:
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            self._parser = None  # no upgrade is offered; the request is answered as it is
        except httptools.HttpParserError as error:
            self._parser = None
            raise HeadError(400, "malformed request head") from error


def check_request_line(line: bytes) -> tuple[str, bytes, str]:
    """Return method, target and version ("1.1") of a request line.

    Raises:
        HeadError: 400 for what is not a request line of HTTP/1, 405 for an unknown method.

    """
    parts = line.split(b" ")
    if len(parts) != 3 or parts[2] not in VERSIONS or not _TARGET.fullmatch(parts[1]):
        raise HeadError(400, "malformed request line")
    method = METHODS.get(parts[0])
    if method is None:
        if _TOKEN.fullmatch(parts[0]) is None:
            raise HeadError(400, "malformed request line")
        raise HeadError(405, "the method is not supported")
    return method, parts[1], VERSIONS[parts[2]]


def check_lines(head: bytes, header_count: int) -> None:
    """Refuse control characters, bare CR or LF, line folding and too many fields."""
    lines = head.count(b"\r\n")
    if head.translate(None, _PRINTABLE) != b"\r\n" * lines:
        raise HeadError(400, "control character in the request head")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise HeadError(400, "obsolete line folding in the request head")
    if lines - 2 > header_count:
        raise HeadError(431, "too many header fields")


def check_partial(data: bytes | bytearray) -> None:
    """Refuse early what no further bytes could turn into an acceptable head."""
    end = data.find(b"\n")
    if end < 0:
        return
    if data[end - 1 : end] != b"\r":
        raise HeadError(400, "a line of the request head does not end in CRLF")
    check_request_line(bytes(data[: end - 1]))


def _interpret(request: RequestHead, fields: list[tuple[bytes, bytes]]) -> None:
    """Act on the fields that decide framing, routing and the life of the connection."""
    seen: set[bytes] = set()
    for name, value in fields:
        if name == b"connection":
            _take_connection(request, value)
            continue
        if name in seen:
            raise HeadError(400, f"more than one {name.decode()} field")
        seen.add(name)
        _INTERPRETERS[name](request, value)
    if b"content-length" in seen and b"transfer-encoding" in seen:
        raise HeadError(400, "both Content-Length and Transfer-Encoding")


def _take_connection(request: RequestHead, value: bytes) -> None:
    options = [option.strip() for option in value.lower().split(b",")]
    if b"close" in options or (request.http_version == "1.0" and b"keep-alive" not in options):
        request.keep_alive = False


def _take_host(request: RequestHead, value: bytes) -> None:
    if _HOST.fullmatch(value) is None:
        raise HeadError(400, "malformed Host field")
    request.host = value


def _take_length(request: RequestHead, value: bytes) -> None:
    if _LENGTH.fullmatch(value) is None:
        raise HeadError(400, "malformed Content-Length")
    length = int(value)
    request.content_length = length
    request.framing = CountedBody(length) if length else None


def _take_encoding(request: RequestHead, value: bytes) -> None:
    if request.http_version == "1.0":
        raise HeadError(400, "Transfer-Encoding needs HTTP/1.1")
    if value.lower() != b"chunked":
        raise HeadError(400, "only the chunked transfer coding is supported")
    request.framing = ChunkedBody()


def _take_expectation(request: RequestHead, value: bytes) -> None:
    if value.lower() != b"100-continue":
        raise HeadError(417, "unknown expectation")
    request.expects_continue = request.http_version == "1.1"


_INTERPRETERS = {
    b"host": _take_host,
    b"content-length": _take_length,
    b"transfer-encoding": _take_encoding,
    b"expect": _take_expectation,
}


def _settle(request: RequestHead, target: bytes) -> None:
    """Check what depends on more than one field."""
    if request.http_version == "1.1":
        if request.host is None:
            raise HeadError(400, "missing Host field")
    elif not any(name == b"connection" for name, _ in request.headers):
        request.keep_alive = False
    if not target.startswith(b"/"):
        _settle_absolute(request, target)


def _settle_absolute(request: RequestHead, target: bytes) -> None:
    """Route a target in absolute form by its path when it names us (RFC 9112 §3.2.2)."""
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise HeadError(400, "malformed request target")
    if request.host is None or match[1].lower() != request.host.lower():
        raise HeadError(421, "the request is meant for another host")
    request.path = match[2] or b"/"
    request.query = (match[3] or b"")[1:]
