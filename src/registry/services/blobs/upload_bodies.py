"""The body of an upload request: its declared length and position, and ways to receive it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from cloudcore.serving.asgi import Body
from registry.errors import BlobTooLarge, SizeInvalid, UploadOutOfOrder
from registry.services.context import ServiceContext


class SmallBody(NamedTuple):
    """A small body, in memory."""

    data: bytes
    is_complete: bool
    """False if the client left before the end; `data` has the bytes that arrived."""


ReadFew = Callable[[int], Awaitable[SmallBody | None]]


class Span(NamedTuple):
    """A chunk's position, from ``Content-Range``: offset of its first byte, and length."""

    first: int
    length: int


class Chunk(NamedTuple):
    """A request's body, and the length and position that its headers declare."""

    body: Body
    declared_bytes: int | None
    """``Content-Length``, or None."""
    span: Span | None = None
    read: ReadFew | None = None
    """Reads the same body into memory. It takes a limit; if the body has more bytes, it returns
    None, and `body` still yields all of them. None if the body can only be streamed."""
    give_back: Callable[[SmallBody], None] | None = None
    """Takes back the result of `read`, so that the body can be received again."""

    async def few(self, limit: int) -> SmallBody | None:
        """Read a body of at most `limit` bytes; return None for a longer one, which `body` yields.

        Raise `SizeInvalid` if the body is complete, but not as long as `span`.
        """
        if self.read is None or limit < 0 or (self.declared_bytes or 0) > limit:
            return None
        few = await self.read(limit)
        if few is not None and few.is_complete and self.span:
            check_span(self.span, len(few.data))
        return few


def check_span(span: Span | None, length: int) -> None:
    """Raise `SizeInvalid` if a complete chunk of `length` bytes is not as long as its span."""
    if span is not None and span.length != length:
        raise SizeInvalid("the body is not as long as its Content-Range says")


def check_offset(span: Span | None, received: int) -> None:
    """Raise `UploadOutOfOrder` unless a chunk begins after the `received` bytes of its session."""
    if span is not None and span.first != received:
        raise UploadOutOfOrder(received)


def check_limit(ctx: ServiceContext, size: int) -> None:
    """Raise `BlobTooLarge` if a blob of `size` bytes exceeds the limit."""
    limit = ctx.limits.max_blob_bytes
    if size > limit:
        raise BlobTooLarge(f"a blob may have at most {limit} bytes", limit=limit)


def cut_short() -> SizeInvalid:
    """Return the error for a body that ended early, because the client disconnected."""
    return SizeInvalid("the body ended before its declared length")
