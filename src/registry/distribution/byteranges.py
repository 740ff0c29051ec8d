"""Byte ranges: ``Range`` of a download, ``Content-Range`` of a chunk, multipart responses.

Clients that have parts of a layer request the others by ``multipart/byteranges`` (RFC 9110 §14.6):
podman for ``zstd:chunked`` layers, and lazily pulling snapshotters. They match the parts of the
response to the requested ranges by position, so ranges are neither joined nor sorted.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from cloudcore.serving.asgi import Scope, Send
from cloudcore.threads import Threads
from registry.blobstore.base import OpenObject
from registry.blobstore.inline import InlineObject
from registry.blobstore.reading import PART_BYTES
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
    """Parse a ``Range`` header for `size` bytes to ``(start, stop)``; None if it does not apply.

    A malformed header or one with another unit does not apply (RFC 9110 §14.2), nor do several
    ranges: see `parse_ranges`.

    Raise `RangeUnsatisfiable` if the range has no byte of the content, or ends before it starts.
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
    """Parse several ranges of `size` bytes to ``(start, stop)`` each, in the order of `header`.

    Ranges without a byte of the content are left out. The list is empty if the header must be
    ignored (RFC 9110 §14.2): if it is malformed, or has more than `MOST_RANGES`.

    Raise `RangeUnsatisfiable` if no range has a byte of the content.
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
    """Parse the ``Content-Range`` of a chunk; return None without the header (end-5, end-6).

    Raises:
        RangeInvalid: the header is not ``<first>-<last>``, the form of the distribution
            specification, or a number is too long.
        SizeInvalid: the span's length differs from ``Content-Length``.
        UploadOutOfOrder: the span ends before it starts.

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
    """Parse a number of bytes; one with too many digits becomes 2**63."""
    return int(text) if len(text) <= _MAX_DIGITS else 1 << 63


_NEAR_BYTES: Final = 1024 * 1024
"""Bytes that are sealed together, in one frame, and so are read together. Ranges with smaller gaps
are read together, too."""
_SENT_BYTES: Final = 64 * 1024
"""Size of the pieces that are sent; ``sendfile`` sends ranges of a file from this size on."""
_BOUNDARY_BYTES: Final = 16
MOST_AGAIN: Final = 4
"""MiB that may be read in excess of the whole blob, for ranges that overlap or go back."""

_READERS: Final = Threads("ranges", at_once=2)
"""A small pool of its own: for one requested byte, the whole frame around it is decrypted, so
readers of ranges could otherwise occupy every core and block all other readers."""


class Part(NamedTuple):
    """A range ``[start, stop)``, and the boundary and headers sent before its bytes."""

    head: bytes
    start: int
    stop: int


class ByteRanges(NamedTuple):
    """The parts of a multipart response; `end` follows the last one."""

    parts: Sequence[Part]
    end: bytes
    content_type: bytes

    @property
    def covered(self) -> int:
        """Return the total size of the ranges in bytes, without headers."""
        return sum(part.stop - part.start for part in self.parts)

    @property
    def length(self) -> int:
        """Return the length of the response body in bytes."""
        return self.covered + sum(len(part.head) for part in self.parts) + len(self.end)

    def cost_more_than_all(self, size: int) -> bool:
        """Return True if it costs less to send a blob of `size` bytes whole.

        That is so if the multipart response is not shorter, or must read over `MOST_AGAIN` MiB
        more. Ascending ranges never read more; others may decrypt the same frame several times.
        """
        read = sum(
            _sealed_together(group[-1].stop) - group[0].start // _NEAR_BYTES
            for group in _groups(self.parts, _NEAR_BYTES)
        )
        return self.length >= size or read > _sealed_together(size) + MOST_AGAIN


class RangesBody(NamedTuple):
    """The ranges of an open blob, as a response body; the blob is closed once they are sent."""

    blob: OpenObject
    ranges: ByteRanges


def byte_ranges(ranges: Sequence[tuple[int, int]], size: int) -> ByteRanges:
    """Return the multipart response for these ranges of a blob of `size` bytes."""
    # Must not be guessable: the author of the blob could write the end of a part into it.
    boundary = secrets.token_hex(_BOUNDARY_BYTES).encode()
    opening, parts = b"--" + boundary, []
    for start, stop in ranges:
        head = (
            b"%b\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes %d-%d/%d\r\n\r\n"
        ) % (opening, start, stop - 1, size)
        parts.append(Part(head, start, stop))
        opening = b"\r\n--" + boundary
    end = opening + b"--\r\n"
    return ByteRanges(parts, end, b"multipart/byteranges; boundary=" + boundary)


def in_memory(blob: InlineObject, ranges: ByteRanges) -> bytes:
    """Return the whole response body, from a blob that is in memory."""
    found = (part.head + blob.in_memory(part.start, part.stop) for part in ranges.parts)
    return b"".join((*found, ranges.end))


async def send_ranges(scope: Scope, send: Send, body: RangesBody) -> None:
    """Send the parts: large ranges of a file by ``sendfile``, others as they are read."""
    blob, waiting = body.blob, bytearray()
    first = body.ranges.parts[0]
    is_file = blob.file_region(first.start, first.stop) is not None
    sends_files = is_file and "http.response.zerocopysend" in scope.get("extensions", {})
    for group in _groups(body.ranges.parts, _SENT_BYTES if is_file else _NEAR_BYTES):
        part = group[0]
        region = blob.file_region(part.start, part.stop) if sends_files else None
        if len(group) == 1 and region is not None and region.count >= _SENT_BYTES:
            await send_part(send, waiting + part.head)
            waiting.clear()
            await send(region.message(more_body=True))
            continue
        read = _read(blob, group)
        while (pieces := await _READERS(next, read, None)) is not None:
            for piece in pieces:
                waiting += piece
                if len(waiting) >= _SENT_BYTES:
                    await send_part(send, waiting)
                    waiting.clear()
    waiting += body.ranges.end
    await send({"type": "http.response.body", "body": bytes(waiting), "more_body": False})


def _sealed_together(size: int) -> int:
    """Return the number of frames in which this many bytes are sealed."""
    return -(-size // _NEAR_BYTES)


def _groups(parts: Sequence[Part], near: int) -> Iterator[Sequence[Part]]:
    """Split the parts, in order, into ascending groups with gaps of at most `near` bytes."""
    begin = 0
    for at, (before, part) in enumerate(pairwise(parts), 1):
        if not 0 <= part.start - before.stop <= near:
            yield parts[begin:at]
            begin = at
    yield parts[begin:]


def _read(blob: OpenObject, group: Sequence[Part]) -> Iterator[list[bytes]]:
    """Yield the bytes of a group of ascending parts, chunk by chunk. Blocks.

    The bytes between the ranges are read and skipped.
    """
    waiting = iter(group)
    part: Part | None = next(waiting)
    found, stop = [group[0].head], group[0].start
    for chunk in blob.chunks(group[0].start, group[-1].stop):
        start, stop = stop, stop + len(chunk)
        while part is not None and part.start < stop:
            view = chunk[max(part.start - start, 0) : part.stop - start]
            found += [bytes(view[at : at + PART_BYTES]) for at in range(0, len(view), PART_BYTES)]
            if part.stop > stop:
                break
            part = next(waiting, None)
            if part is not None:
                found.append(part.head)
        yield found
        found = []


async def send_part(send: Send, part: bytes | bytearray) -> None:
    """Send a part of a body, but not the last."""
    await send({"type": "http.response.body", "body": bytes(part), "more_body": True})
    # With a fast reader, send() never waits: let other requests run.
    await asyncio.sleep(0)
