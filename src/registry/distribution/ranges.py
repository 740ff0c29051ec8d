"""Byte ranges: what a reader asks for (``Range``) and where a chunk lies (``Content-Range``)."""

from __future__ import annotations

import re
from typing import Final

from registry.errors import RangeInvalid, RangeUnsatisfiable, SizeInvalid, UploadOutOfOrder
from registry.services.blobs.uploads import Span

_RANGE: Final = re.compile(r"(?i:bytes)=([0-9]*)-([0-9]*)", re.ASCII)  # RFC 9110 §14.1
_CONTENT_RANGE: Final = re.compile(r"([0-9]+)-([0-9]+)", re.ASCII)
_MAX_DIGITS: Final = 19
"""Enough for every 63-bit number; longer ones are never converted."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the ``(start, stop)`` a ``Range`` header asks of `size` bytes; None for all of them.

    Several ranges, another unit, or what is no range at all are ignored (RFC 9110 §14.2).

    Raises:
        RangeUnsatisfiable: the range holds no byte of the content, or ends before it begins.

    """
    if header is None:
        return None
    match = _RANGE.fullmatch(header.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":
        count = _number(last)
        if count == 0 or size == 0:
            raise RangeUnsatisfiable(size)
        return max(0, size - count), size
    start = _number(first)
    stop = _number(last) + 1 if last else size
    if start >= size or stop <= start:
        raise RangeUnsatisfiable(size)
    return start, min(stop, size)


def parse_content_range(header: str | None, content_length: int | None) -> Span | None:
    """Return where a chunk says it lies; None when it does not say (end-5, end-6).

    Raises:
        RangeInvalid: not ``<first>-<last>``, the form of the distribution specification.
        SizeInvalid: the span is not as long as ``Content-Length`` says.
        UploadOutOfOrder: it ends before it begins, or beyond what any blob can hold.

    """
    if header is None:
        return None
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if match is None or max(map(len, match.groups())) > _MAX_DIGITS:
        raise RangeInvalid("Content-Range of a chunk is <first byte>-<last byte>")
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise UploadOutOfOrder(0)
    span = Span(first, last - first + 1)
    if content_length is not None and content_length != span.length:
        raise SizeInvalid(
            f"Content-Range spans {span.length} bytes, but Content-Length is {content_length}"
        )
    return span


def _number(text: str) -> int:
    """Return a number of bytes; one too long to matter becomes the largest there can be."""
    return int(text) if len(text) <= _MAX_DIGITS else 1 << 63
