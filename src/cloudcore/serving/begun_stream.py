"""Streams whose first part is read before the answer begins, so that its error can be answered."""

from __future__ import annotations

from collections.abc import AsyncIterator


async def begin_stream(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Read the first part; return an iterator over all parts. Raise what reading it raises."""
    return _with_first(await anext(parts, b""), parts)


async def _with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for part in rest:
        yield part
