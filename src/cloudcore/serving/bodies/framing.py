"""Find the end of a request body, counted or chunked, while it arrives (RFC 9112 §6, §7.1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

MAX_LINE_BYTES = 4096
"""Longest chunk-size line (with extensions) or trailer line."""

MAX_OVERHEAD_BYTES = 16 * 1024
"""Maximum bytes of framing in excess of content; stops bodies of only extensions or trailers."""

FREE_OVERHEAD_BYTES = 16
"""Bytes of framing per chunk that do not count as overhead."""

Output = Callable[[memoryview], None]

LEAST_FORESEEN_BYTES = 4096
LONGEST_FORESEEN_LINE = 64

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")


class FramingError(Exception):
    """The body violates its framing; its end cannot be determined."""


class BodyFraming(Protocol):
    """Finds the content and the end of one request body in the bytes of the connection."""

    complete: bool

    def feed(self, data: bytes | bytearray, end: int, output: Output) -> int:
        """Pass the content in ``data[:end]`` to `output`; return the number of bytes consumed.

        Bytes left over after a complete body belong to the next request. The views are valid only
        during the call. Raise `FramingError` if the framing is malformed.
        """


class CountedBody:
    """A body of known length (``Content-Length``)."""

    __slots__ = ("complete", "remaining")

    def __init__(self, length: int) -> None:
        self.remaining = length
        self.complete = length == 0

    def feed(self, data: bytes | bytearray, end: int, output: Output) -> int:
        """Pass on up to the declared length; see `BodyFraming.feed`."""
        taken = min(end, self.remaining)
        if taken:
            with memoryview(data) as view, view[:taken] as part:
                output(part)
            self.advance(taken)
        return taken

    def advance(self, count: int) -> None:
        """Skip `count` bytes of content that were received without `feed`."""
        self.remaining -= count
        self.complete = self.remaining == 0


class NextChunk(NamedTuple):
    """The bytes that follow the current chunk if the next chunk has the same size line."""

    framing: bytes
    """The end of the current chunk, and the size line of the next."""
    size: int
    """Content bytes of the next chunk."""


class ChunkedBody:
    """A body in the chunked transfer coding (RFC 9112 §7.1), decoded strictly.

    Only CRLF ends a line, and sizes are plain hexadecimal; extensions and trailers are bounded and
    dropped.
    """

    __slots__ = (
        "_foreseen", "_in_content", "_in_trailer", "_line", "_overhead", "_remaining",
        "_size_line", "complete",
    )  # fmt: skip

    def __init__(self) -> None:
        self.complete = False
        self._size_line = b""
        self._foreseen: NextChunk | None = None
        self._remaining = 0  # content bytes of this chunk still to come
        self._in_content = False  # between a size line and the CRLF after its content
        self._in_trailer = False
        self._line = bytearray()  # the part of a line that came with earlier data
        self._overhead = 0

    def feed(self, data: bytes | bytearray, end: int, output: Output) -> int:
        """Decode chunks; see `BodyFraming.feed`."""
        position = 0
        with memoryview(data) as view:
            while position < end and not self.complete:
                if self._remaining:
                    taken = min(self._remaining, end - position)
                    with view[position : position + taken] as part:
                        output(part)
                    self._remaining -= taken
                    position += taken
                else:
                    position = self._take_line(data, position, end)
        return position

    @property
    def foreseen(self) -> NextChunk | None:
        """Return the likely bytes after this chunk, or None.

        A guess exists inside a large chunk whose size line equals that of the previous chunk.
        """
        return self._foreseen if self._in_content and not self._line else None

    @property
    def remaining(self) -> int:
        """Return the number of content bytes of this chunk still to come."""
        return self._remaining

    def advance(self, chunks: int, remaining: int) -> None:
        """Skip content received without `feed`: the rest of this chunk, and `chunks` more chunks.

        `remaining` is the number of content bytes of the last chunk that are still to come.
        """
        assert self._foreseen is not None
        for _ in range(chunks):
            self._spend(len(self._size_line), FREE_OVERHEAD_BYTES + self._foreseen.size)
        self._remaining = remaining

    def _take_line(self, data: bytes | bytearray, start: int, end: int) -> int:
        """Read up to the next LF; process the line if it is complete. Return the new position."""
        found = data.find(b"\n", start, end)
        stop = end if found < 0 else found + 1
        line = self._line
        line += data[start:stop]
        if len(line) > MAX_LINE_BYTES:
            raise FramingError("a chunk-size or trailer line is too long")
        if found >= 0:
            if line[-2:] != b"\r\n":
                raise FramingError("a line of the chunked coding does not end in CRLF")
            self._line = bytearray()
            self._act_on(bytes(line[:-2]))
        elif self._in_content and line != b"\r":
            raise FramingError("a chunk is longer than its size says")
        return stop

    def _act_on(self, line: bytes) -> None:
        """Process a complete line, without its CRLF."""
        if self._in_content:
            if line:
                raise FramingError("a chunk is longer than its size says")
            self._in_content = False
        elif self._in_trailer:
            self._take_trailer(line)
        else:
            self._take_size(line)

    def _take_size(self, line: bytes) -> None:
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise FramingError("malformed chunk size")
        size = int(match[1], 16)
        self._spend(len(line), FREE_OVERHEAD_BYTES + size)
        self._foresee(line, size)
        if size:
            self._remaining = size
            self._in_content = True
        else:
            self._in_trailer = True

    def _foresee(self, line: bytes, size: int) -> None:
        is_usual = line == self._size_line and len(line) <= LONGEST_FORESEEN_LINE
        self._size_line = line
        self._foreseen = (
            NextChunk(b"\r\n%b\r\n" % line, size)
            if is_usual and size >= LEAST_FORESEEN_BYTES
            else None
        )

    def _take_trailer(self, line: bytes) -> None:
        if not line:
            self.complete = True
            return
        if _TRAILER.fullmatch(line) is None:
            raise FramingError("malformed trailer field")
        self._spend(len(line), 0)

    def _spend(self, cost: int, credit: int) -> None:
        self._overhead = max(0, self._overhead + cost - credit)
        if self._overhead > MAX_OVERHEAD_BYTES:
            raise FramingError("too much chunk framing for too little content")
