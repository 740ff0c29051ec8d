"""Parse the head of a request: limit its size, check it strictly, then use httptools.

httptools alone accepts obsolete line folding, a missing or repeated ``Host``, HTTP/0.9 and
unbounded heads. If a proxy reads such a message differently, requests can be smuggled (RFC 9112
§11.2). So everything ambiguous is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import httptools

from cloudcore.serving.bodies.framing import BodyFraming, ChunkedBody, CountedBody
from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.request_record import MAX_USER_AGENT

METHODS = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}
ALLOW = b", ".join(METHODS)

VERSIONS = {b"HTTP/1.1": "1.1", b"HTTP/1.0": "1.0"}

TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=-]*(?::[0-9]*)?|\[[0-9A-Fa-f:.]+\](?::[0-9]*)?")
LENGTH = re.compile(rb"[0-9]{1,18}")
_TARGET = re.compile(rb"[\x21\x22\x24-\x7e]+")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?]*)(/[^?]*)?(\?.*)?")

PRINTABLE = bytes(code for code in range(256) if code == 9 or (code >= 32 and code != 127))
"""All bytes allowed in a head besides the CRLF that ends its lines."""


class HeadError(Exception):
    """The request head must be refused with `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(eq=False, slots=True, repr=False)
class RequestHead:
    """A request head that passed every check."""

    method: str
    http_version: str
    path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    traits: Traits
    raw: bytes

    def __repr__(self) -> str:
        """Return only the method and the path, so that no headers or signatures get into logs."""
        return f"RequestHead({self.method!r}, {self.path!r})"


@dataclass(slots=True)
class Traits:
    """The fields of a head that concern framing, routing and the connection."""

    http_version: str
    host: bytes | None = None
    content_length: int | None = None
    chunked: bool = False
    expects_continue: bool = False
    keep_alive: bool = True
    user_agent: bytes = b""
    """The first ``User-Agent``, truncated to `MAX_USER_AGENT` bytes."""

    @property
    def has_body(self) -> bool:
        """Return True if a body follows the head."""
        return self.chunked or bool(self.content_length)

    def framing(self) -> BodyFraming:
        """Return a new parser for the framing of the body."""
        return ChunkedBody() if self.chunked else CountedBody(self.content_length or 0)


@dataclass(slots=True)
class HeadReader:
    """Parses the heads of one connection.

    Clients repeat the same fields with every request of a connection, so the last block of
    fields is cached with its result.
    """

    limits: ServerLimits
    _block: bytes = b""
    _headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    _meaningful: list[tuple[bytes, bytes]] = field(default_factory=list)
    _traits: Traits = field(default_factory=lambda: Traits(""))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one field (called by httptools)."""
        entry = (name.lower(), value.strip(b" \t"))
        self._headers.append(entry)
        if entry[0] in _INTERPRETERS:
            self._meaningful.append(entry)

    def read(self, head: bytes) -> RequestHead:
        """Check and parse a complete head, from the method to the empty line.

        Raise `HeadError` if the head is malformed, ambiguous or not supported.
        """
        end = head.index(b"\r\n")
        method, target, version = _check_request_line(head[:end])
        block = head[end:]
        if block != self._block or version != self._traits.http_version:
            self._read_fields(head, version)
            self._block = block
        path, _, query = target.partition(b"?")
        if not target.startswith(b"/"):
            path, query = _split_absolute(target, self._traits.host)
        return RequestHead(method, version, path, query, self._headers.copy(), self._traits, head)

    def _read_fields(self, head: bytes, version: str) -> None:
        self._block = b""
        self._headers = []
        self._meaningful = []
        _check_lines(head, self.limits.header_count)
        # A new parser each time: after a head that announces a body, a parser expects the body.
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # upgrades are not supported and ignored
        except httptools.HttpParserError as error:
            raise HeadError(400, "malformed request head") from error
        self._traits = interpret(version, self._meaningful)
        agents = (value for name, value in self._headers if name == b"user-agent")
        self._traits.user_agent = next(agents, b"")[:MAX_USER_AGENT]


def without_empty_lines(data: bytes) -> bytes:
    """Skip empty lines before a request line (RFC 9112 §2.2)."""
    while data.startswith(b"\r\n"):
        data = data[2:]
    return data


def _check_request_line(line: bytes) -> tuple[str, bytes, str]:
    """Return (method, target, version) of a request line; the version is "1.0" or "1.1".

    Raise `HeadError`: 400 if it is not a request line of HTTP/1, 405 for an unknown method.
    """
    parts = line.split(b" ")
    if len(parts) != 3 or parts[2] not in VERSIONS or not _TARGET.fullmatch(parts[1]):
        raise HeadError(400, "malformed request line")
    method = METHODS.get(parts[0])
    if method is None:
        if TOKEN.fullmatch(parts[0]) is None:
            raise HeadError(400, "malformed request line")
        raise HeadError(405, "the method is not supported")
    return method, parts[1], VERSIONS[parts[2]]


def _check_lines(head: bytes, header_count: int) -> None:
    """Raise `HeadError` for control characters, bare CR or LF, line folding or too many fields."""
    lines = head.count(b"\r\n")
    if head.translate(None, PRINTABLE) != b"\r\n" * lines:
        raise HeadError(400, "control character in the request head")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise HeadError(400, "obsolete line folding in the request head")
    if lines - 2 > header_count:
        raise HeadError(431, "too many header fields")


def check_partial(data: bytes | bytearray) -> None:
    """Raise `HeadError` early if the request line of an incomplete head must be refused."""
    end = data.find(b"\n")
    if end < 0:
        return
    if data[end - 1 : end] != b"\r":
        raise HeadError(400, "a line of the request head does not end in CRLF")
    _check_request_line(bytes(data[: end - 1]))


def interpret(version: str, fields: list[tuple[bytes, bytes]]) -> Traits:
    """Interpret the fields that determine framing, routing and the connection's persistence.

    Raise `HeadError` if they are malformed, contradictory or not allowed in this version.
    """
    traits = Traits(version)
    seen: set[bytes] = set()
    for name, value in fields:
        if name in seen and name != b"connection":
            raise HeadError(400, f"more than one {name.decode()} field")
        seen.add(name)
        _INTERPRETERS[name](traits, value)
    if traits.chunked and traits.content_length is not None:
        raise HeadError(400, "both Content-Length and Transfer-Encoding")
    if version == "1.0":
        traits.keep_alive = traits.keep_alive and b"connection" in seen
    elif traits.host is None:
        raise HeadError(400, "missing Host field")
    return traits


def _take_connection(traits: Traits, value: bytes) -> None:
    options = [option.strip() for option in value.lower().split(b",")]
    if b"close" in options or (traits.http_version == "1.0" and b"keep-alive" not in options):
        traits.keep_alive = False


def _take_host(traits: Traits, value: bytes) -> None:
    if _HOST.fullmatch(value) is None:
        raise HeadError(400, "malformed Host field")
    traits.host = value.lower()


def _take_length(traits: Traits, value: bytes) -> None:
    if LENGTH.fullmatch(value) is None:
        raise HeadError(400, "malformed Content-Length")
    traits.content_length = int(value)


def _take_encoding(traits: Traits, value: bytes) -> None:
    if traits.http_version == "1.0":
        raise HeadError(400, "Transfer-Encoding needs HTTP/1.1")
    if value.lower() != b"chunked":
        raise HeadError(400, "only the chunked transfer coding is supported")
    traits.chunked = True


def _take_expectation(traits: Traits, value: bytes) -> None:
    if not value:  # an empty list, which RFC 9110 §5.6.1 lets a recipient ignore
        return
    if value.lower() != b"100-continue":
        raise HeadError(417, "unknown expectation")
    traits.expects_continue = traits.http_version == "1.1"


_INTERPRETERS = {
    b"connection": _take_connection,
    b"host": _take_host,
    b"content-length": _take_length,
    b"transfer-encoding": _take_encoding,
    b"expect": _take_expectation,
}


def _split_absolute(target: bytes, host: bytes | None) -> tuple[bytes, bytes]:
    """Return (path, query) of an absolute-form target (RFC 9112 §3.2.2).

    Raise `HeadError` if the target is malformed or names another host than `host`.
    """
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise HeadError(400, "malformed request target")
    if match[1].lower() != host:
        raise HeadError(421, "the request is meant for another host")
    return match[2] or b"/", (match[3] or b"")[1:]
