"""Render response heads from ASGI messages, and refuse header injection."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_PRINTABLE = bytes(code for code in range(256) if code == 9 or (code >= 32 and code != 127))

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

    Maps a name to the start of its line and the kind of the header.
    """

    def __missing__(self, name: bytes) -> tuple[bytes, int]:
        """Check and add a new name; there are few."""
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"invalid header name {name!r}")
        entry = (name + b": ", _KINDS.get(name.lower(), _PLAIN))
        if len(self) < MAX_KNOWN_NAMES:
            self[name] = entry
        return entry


class Fields(NamedTuple):
    """The header fields of an application's ``http.response.start`` message."""

    block: bytes
    content_length: int | None
    closes: bool


def read_fields(headers: Iterable[tuple[bytes, bytes]], names: HeaderNames) -> Fields:
    """Return the header lines to send, without those for framing.

    Raises:
        ValueError: a name or value contains invalid characters.

    """
    lines: list[bytes] = []
    length: int | None = None
    closes = False
    for name, value in headers:
        start, kind = names[name]
        if not kind:  # _PLAIN, as most are
            lines += (start, value, b"\r\n")
        elif kind == _CONTENT_LENGTH:
            if _LENGTH.fullmatch(value) is None:
                raise ValueError("invalid content-length")
            length = int(value)
        elif kind == _CONNECTION:
            closes = closes or b"close" in value.lower()
    block = b"".join(lines)
    if block.translate(None, _PRINTABLE) != b"\r\n" * (len(lines) // 3):
        raise ValueError("control character in a response header")
    return Fields(block, length, closes)


def status_line(status: int) -> bytes:
    """Return the first line of a response."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
