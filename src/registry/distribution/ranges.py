"""Parse byte ranges: ``Range`` of a download, ``Content-Range`` of a chunk."""

from __future__ import annotations

import re
from typing import Final

from registry.errors import RangeInvalid, RangeUnsatisfiable, SizeInvalid, UploadOutOfOrder
from registry.services.blobs.upload_bodies import Span

_RANGE: Final = re.compile(r"(?i:bytes)=([0-9]*)-([0-9]*)", re.ASCII)  # RFC 9110 §14.1
_CONTENT_RANGE: Final = re.compile(r"([0-9]+)-([0-9]+)", re.ASCII)
MOST_RANGES: Final = 1024
"""Most ranges of one request: as many as containers/storage asks for at once."""
_SPEC: Final = re.compile(r"([0-9]*)-([0-9]*)", re.ASCII)
_MAX_DIGITS: Final = 19
"""The digits of the largest 63-bit number; longer text is never converted."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return ``(start, stop)`` of a ``Range`` header for `size` bytes, or None for all of them.

    A malformed header and another unit are ignored (RFC 9110 §14.2), and so are several ranges: see
    `parse_ranges`.

    Raises:
        RangeUnsatisfiable: the range has no byte of the content, or ends before it starts.

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


def parse_ranges(header: str, size: int) -> list[tuple[int, int]]:
    """Return ``(start, stop)`` of each of several ranges of `size` bytes, in the order of `header`.

    Ranges without a byte of the content are left out. The list is empty if the header is to be
    ignored (RFC 9110 §14.2): it is malformed, or has more than `MOST_RANGES`.

    Raises:
        RangeUnsatisfiable: no range has a byte of the content.

    """
    unit, _, text = header.strip().partition("=")
    specs = [spec for each in text.split(",") if (spec := each.strip())]
    if unit.lower() != "bytes" or not 0 < len(specs) <= MOST_RANGES:
        return []
    ranges = []
    for spec in specs:
        match = _SPEC.fullmatch(spec)
        if match is None or spec == "-":
            return []
        first, last = match.groups()
        if first and last and _number(last) < _number(first):
            return []
        start = _number(first) if first else max(0, size - _number(last))
        stop = min(_number(last) + 1, size) if first and last else size
        if start < stop:
            ranges.append((start, stop))
    if not ranges:
        raise RangeUnsatisfiable(size)
    return ranges


def parse_content_range(header: str | None, content_length: int | None) -> Span | None:
    """Return the span in ``Content-Range`` of a chunk, or None without the header (end-5, end-6).

    Raises:
        RangeInvalid: it is not ``<first>-<last>``, the form of the distribution specification, or
            a number is too long.
        SizeInvalid: its length differs from ``Content-Length``.
        UploadOutOfOrder: it ends before it starts.

    """
    if header is None:
        return None
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if match is None or max(map(len, match.groups())) > _MAX_DIGITS:
        raise RangeInvalid("Content-Range of a chunk is <first byte>-<last byte>")
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise UploadOutOfOrder(0, "Content-Range of the chunk ends before it starts")
    span = Span(first, last - first + 1)
    if content_length is not None and content_length != span.length:
        raise SizeInvalid(
            f"Content-Range spans {span.length} bytes, but Content-Length is {content_length}"
        )
    return span


def _number(text: str) -> int:
    """Return a number of bytes; one with too many digits becomes 2**63."""
    return int(text) if len(text) <= _MAX_DIGITS else 1 << 63
