"""Heads and bodies of HTTP/1.1 for the embedded proxy, parsed strictly (RFC 9112).

Ambiguous input is refused, and forwarded messages are written anew from the parsed values. The
module imports only the standard library.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final

HEAD_BYTES: Final = 15 * 1024
HEAD_FIELDS: Final = 100
READ_BYTES: Final = 64 * 1024
_TRAILER_BYTES: Final = 4096

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#@]+)(.*)", re.IGNORECASE)
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"):([\t\x20-\x7e\x80-\xff]*)")
_HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")

_OF_ONE_CONNECTION: Final = frozenset(
    b"connection keep-alive proxy-connection te trailer transfer-encoding upgrade".split()
)
_WRITTEN_ANEW: Final = frozenset(b"host content-length x-forwarded-for x-forwarded-proto".split())
_NEVER_NAMED: Final = frozenset((b"host", b"content-length", b"transfer-encoding"))
"""Fields that `Connection` may not remove."""

Fields = list[tuple[bytes, bytes]]


class Malformed(Exception):
    """The input is no HTTP message, or an ambiguous one; `status` is the response to the client."""

    def __init__(self, status: int = 400) -> None:
        super().__init__(status)
        self.status = status


CHUNKED: Final = -1
UNTIL_CLOSE: Final = -2
"""Values of `Head.length` for bodies without a known length."""


@dataclass(slots=True)
class Head:
    """The parsed head of an HTTP message, without hop-by-hop fields."""

    fields: Fields
    length: int
    """The length of the body in bytes; or CHUNKED, or UNTIL_CLOSE."""
    is_last: bool
    """This is the last message on the connection."""
    upgrade: bytes | None
    """The protocol to which the connection changes; None if it stays HTTP."""


@dataclass(slots=True)
class Request(Head):
    """The head of a request."""

    method: bytes
    target: bytes
    minor: int
    """The minor version of HTTP/1."""
    size: int
    """The size of the head in bytes."""
    forwarded_for: list[bytes]

    @property
    def is_repeatable(self) -> bool:
        """Return True if the request may be sent again: it has no body and changes nothing."""
        return self.length == 0 and self.method in (b"GET", b"HEAD", b"OPTIONS")

    def passed_on(self, client: str, protocol: str) -> bytes:
        """Return the head to send to a target.

        The client's address is added to ``X-Forwarded-For``, and ``X-Forwarded-Proto`` is replaced.
        """
        addresses = b", ".join([*self.forwarded_for, client.encode()])
        lines = [
            b"%b %b HTTP/1.1" % (self.method, self.target),
            *(b"%b: %b" % field for field in self.fields),
            b"X-Forwarded-For: " + addresses,
            b"X-Forwarded-Proto: " + protocol.encode(),
            *_framing(self.length),
        ]
        return _joined(lines, self.upgrade or None, is_last=True)


@dataclass(slots=True)
class Response(Head):
    """The head of a response."""

    line: bytes
    status: int
    announced: bytes | None
    """The length of a body that is announced but not sent: in responses to HEAD, and with 304."""

    def passed_on(self, length: int, *, is_last: bool) -> bytes:
        """Return the head to send to the client; `length` is that of the body, as `Head.length`."""
        lines = [self.line, *(b"%b: %b" % field for field in self.fields), *_framing(length)]
        if self.announced is not None:
            lines.append(b"Content-Length: " + self.announced)
        return _joined(lines, self.upgrade, is_last=is_last and self.status >= 200)


def _joined(lines: list[bytes], upgrade: bytes | None, *, is_last: bool) -> bytes:
    if upgrade is not None:
        lines += [b"Connection: upgrade", b"Upgrade: " + upgrade]
    elif is_last:
        lines.append(b"Connection: close")
    return b"\r\n".join([*lines, b"", b""])


def _framing(length: int) -> Iterable[bytes]:
    if length == CHUNKED:
        return (b"Transfer-Encoding: chunked",)
    return (b"Content-Length: %d" % length,) if length > 0 else ()


async def _read_lines(reader: asyncio.StreamReader) -> list[bytes]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Malformed(431) from None
    if len(head) > HEAD_BYTES:
        raise Malformed(431)
    return head[:-4].removeprefix(b"\r\n").split(b"\r\n")


def _parse(lines: list[bytes]) -> Fields:
    if len(lines) > HEAD_FIELDS:
        raise Malformed(431)
    fields = []
    for line in lines:
        parsed = _FIELD.fullmatch(line)
        if parsed is None:
            raise Malformed
        fields.append((parsed[1], parsed[2].strip(b" \t")))
    return fields


def _of(fields: Fields, name: bytes) -> list[bytes]:
    return [value for other, value in fields if other.lower() == name]


def _listed(values: Iterable[bytes]) -> list[bytes]:
    return [one.strip(b" \t") for value in values for one in value.split(b",") if one.strip(b" \t")]


def _length(fields: Fields) -> int | None:
    """Return the length of the body as `Head.length`, or None if no field has it.

    Raise `Malformed` if the fields contradict one another.
    """
    counted, coded = _of(fields, b"content-length"), _of(fields, b"transfer-encoding")
    if coded:
        if counted or len(coded) > 1 or coded[0].lower() != b"chunked":
            raise Malformed
        return CHUNKED
    if not counted:
        return None
    if len(counted) > 1 or _LENGTH.fullmatch(counted[0]) is None:
        raise Malformed
    return int(counted[0])


def _kept(fields: Fields, also: frozenset[bytes]) -> tuple[Fields, set[bytes]]:
    """Return (fields to forward, lower-case names in `Connection`).

    The fields `also` are not forwarded. Raise `Malformed` if `Connection` names one of
    `_NEVER_NAMED`.
    """
    named = {name.lower() for name in _listed(_of(fields, b"connection"))}
    if named & _NEVER_NAMED:
        raise Malformed
    dropped = _OF_ONE_CONNECTION | named | also
    # A target that reads `_` as `-` would take such a field of a client for ours.
    return [field for field in fields if field[0].lower().replace(b"_", b"-") not in dropped], named


def _upgrade(fields: Fields, named: set[bytes]) -> bytes | None:
    """Return `websocket` if the sender requests it, else None: no other protocol is forwarded."""
    asked = [protocol.lower() for protocol in _of(fields, b"upgrade")]
    return b"websocket" if asked == [b"websocket"] and b"upgrade" in named else None


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read the next request head from a client.

    Raise `Malformed`, with the status to answer, or `EOFError` if the connection has ended.
    """
    first, *lines = await _read_lines(reader)
    parsed = _REQUEST.fullmatch(first)
    if parsed is None:
        raise Malformed
    method, target, minor = parsed[1], parsed[2], int(parsed[3])
    if method == b"CONNECT":
        raise Malformed(405)
    fields = _parse(lines)
    length = _length(fields)
    if minor == 0 and length == CHUNKED:
        raise Malformed
    target, host = _target(method, target, _of(fields, b"host"), minor)
    kept, named = _kept(fields, _WRITTEN_ANEW)
    upgrade = _upgrade(fields, named) if not length else None
    if length == 0:  # some servers refuse a PUT or POST without it, and signatures may cover it
        kept.append((b"Content-Length", b"0"))
    return Request(
        fields=[(b"Host", host), *kept],
        length=length or 0,
        is_last=minor == 0 or b"close" in named,
        upgrade=upgrade,
        method=method,
        target=target,
        minor=minor,
        size=sum(map(len, lines)) + 2 * len(lines) + len(first) + 4,
        forwarded_for=_listed(_of(fields, b"x-forwarded-for")),
    )


def _target(method: bytes, target: bytes, hosts: list[bytes], minor: int) -> tuple[bytes, bytes]:
    """Return (path and query, host); the host of an absolute target wins (RFC 9112 §3.2.2)."""
    if len(hosts) > 1 or (minor == 1 and not hosts):
        raise Malformed
    host = hosts[0] if hosts else b""
    if absolute := _ABSOLUTE.fullmatch(target):
        host, target = absolute[1], absolute[2]
        if not target.startswith(b"/"):
            target = b"/" + target
    if _HOST.fullmatch(host) is None:
        raise Malformed
    if not target.startswith(b"/") and (method, target) != (b"OPTIONS", b"*"):
        raise Malformed
    return target, host


async def read_response(reader: asyncio.StreamReader, method: bytes) -> Response:
    """Read the head of a target's response to a request with this method.

    Raise `Malformed`, or `EOFError` if the connection has ended.
    """
    try:
        first, *lines = await _read_lines(reader)
        fields = _parse(lines)
        length = _length(fields)
        kept, named = _kept(fields, frozenset((b"content-length",)))
    except Malformed:
        raise Malformed(502) from None
    parsed = _STATUS.fullmatch(first)
    if parsed is None:
        raise Malformed(502)
    status = int(parsed[2])
    announced = None
    if method == b"HEAD" or status < 200 or status in (204, 304):
        if length is not None and length >= 0 and status >= 200 and status != 204:
            announced = b"%d" % length
        length = 0
    elif length == 0:
        announced = b"0"
    return Response(
        fields=kept,
        length=UNTIL_CLOSE if length is None else length,
        is_last=True,
        upgrade=_upgrade(fields, named) if status == 101 else None,
        line=b"HTTP/1.1" + first[8:],
        status=status,
        announced=announced,
    )


async def parts_of(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    """Yield the content of a body as it arrives; `length` is as `Head.length`.

    Raise `Malformed` if the chunks are malformed, `EOFError` if the body ends early.
    """
    if length == UNTIL_CLOSE:
        while part := await reader.read(READ_BYTES):
            yield part
    elif length == CHUNKED:
        while size := await _read_chunk_size(reader):
            async for part in parts_of(reader, size):
                yield part
            if await reader.readexactly(2) != b"\r\n":
                raise Malformed
        await _skip_trailers(reader)
    else:
        while length:
            part = await reader.read(min(length, READ_BYTES))
            if not part:
                raise EOFError
            length -= len(part)
            yield part


def framed(part: bytes, length: int) -> bytes:
    """Return a part of a body as bytes to send: as a chunk if `length` is `CHUNKED`."""
    return b"%x\r\n%b\r\n" % (len(part), part) if length == CHUNKED else part


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError:
        raise Malformed from None
    if len(line) > _TRAILER_BYTES:
        raise Malformed
    return line


async def _read_chunk_size(reader: asyncio.StreamReader) -> int:
    parsed = _CHUNK.fullmatch(await _read_line(reader))
    if parsed is None:
        raise Malformed
    return int(parsed[1], 16)


async def _skip_trailers(reader: asyncio.StreamReader) -> None:
    """Read and drop the trailers; raise `Malformed` if they are malformed or too long."""
    most = _TRAILER_BYTES
    while (line := await _read_line(reader)) != b"\r\n":
        most -= len(line)
        if most < 0 or _FIELD.fullmatch(line[:-2]) is None:
            raise Malformed
