"""Several ranges of a blob in one answer: ``multipart/byteranges`` (RFC 9110 §14.6).

Clients that know what they have of a layer ask for what they lack: podman of layers that are
``zstd:chunked``, and snapshotters that pull lazily. They take the parts for what they have asked
for, one by one: ranges are neither joined nor sorted.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from cloudcore.serving.body import Scope, Send
from registry.blobstore.base import OpenObject
from registry.blobstore.inline import InlineObject

_NEAR_BYTES: Final = 1024 * 1024
"""Distance up to which ranges that are sealed are read together: so many are opened at once."""
_SENT_BYTES: Final = 64 * 1024
"""Bytes that are sent at once, and from which ``sendfile`` sends a range."""
_BOUNDARY_BYTES: Final = 16


class Part(NamedTuple):
    """A range ``[start, stop)``, and what comes before its bytes."""

    head: bytes
    start: int
    stop: int


class ByteRanges(NamedTuple):
    """The parts of an answer; `end` comes after the last one."""

    parts: Sequence[Part]
    end: bytes
    content_type: bytes

    @property
    def covered(self) -> int:
        """Return the bytes of the ranges."""
        return sum(part.stop - part.start for part in self.parts)

    @property
    def length(self) -> int:
        """Return the bytes of the answer."""
        return self.covered + sum(len(part.head) for part in self.parts) + len(self.end)


class RangesBody(NamedTuple):
    """Ranges of an open blob, which is closed once they are sent."""

    blob: OpenObject
    ranges: ByteRanges


def byte_ranges(ranges: Sequence[tuple[int, int]], size: int) -> ByteRanges:
    """Return the answer to a request for these ranges of a blob of `size` bytes."""
    # Not to be guessed: whoever pushes the blob could write the end of a part into it.
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
    """Return the whole answer from a blob that is in memory."""
    found = (part.head + blob.in_memory(part.start, part.stop) for part in ranges.parts)
    return b"".join((*found, ranges.end))


async def send_ranges(scope: Scope, send: Send, body: RangesBody) -> None:
    """Send the parts: a large range of a file by ``sendfile``, others as they are read."""
    blob, waiting = body.blob, bytearray()
    first = body.ranges.parts[0]
    is_file = blob.file_region(first.start, first.stop) is not None
    sends_files = is_file and "http.response.zerocopysend" in scope.get("extensions", {})
    for group in _groups(body.ranges.parts, _SENT_BYTES if is_file else _NEAR_BYTES):
        part = group[0]
        region = blob.file_region(part.start, part.stop) if sends_files else None
        if len(group) == 1 and region is not None and region.count >= _SENT_BYTES:
            await _send(send, waiting + part.head)
            waiting.clear()
            await send(
                {
                    "type": "http.response.zerocopysend",
                    "file": region.descriptor,
                    "offset": region.offset,
                    "count": region.count,
                    "more_body": True,
                }
            )
            continue
        async for piece in _read(blob, group):
            waiting += piece
            if len(waiting) >= _SENT_BYTES:
                await _send(send, waiting)
                waiting.clear()
    waiting += body.ranges.end
    await send({"type": "http.response.body", "body": bytes(waiting), "more_body": False})


def _groups(parts: Sequence[Part], near: int) -> Iterator[Sequence[Part]]:
    """Yield the parts in order, together those that follow each other within `near` bytes."""
    begin = 0
    for at, (before, part) in enumerate(pairwise(parts), 1):
        if not 0 <= part.start - before.stop <= near:
            yield parts[begin:at]
            begin = at
    yield parts[begin:]


async def _read(blob: OpenObject, group: Sequence[Part]) -> AsyncIterator[bytes]:
    """Yield the parts of a group, whose ranges ascend; the bytes between are read, and left out."""
    waiting = iter(group)
    part: Part | None = next(waiting)
    stop = group[0].start
    yield group[0].head
    async for chunk in blob.stream(group[0].start, group[-1].stop):
        start, stop = stop, stop + len(chunk)
        while part is not None and part.start < stop:
            yield chunk[max(part.start - start, 0) : part.stop - start]
            if part.stop > stop:
                break
            part = next(waiting, None)
            if part is not None:
                yield part.head


async def _send(send: Send, data: bytearray) -> None:
    await send({"type": "http.response.body", "body": bytes(data), "more_body": True})
    # With a fast reader, send() never waits: let other requests run.
    await asyncio.sleep(0)
