"""Pull, check and unlink blobs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Final, NamedTuple

from registry.blobstore.base import OpenObject
from registry.blobstore.inline import InlineObject
from registry.distribution import byteranges
from registry.distribution.kept_answers import kept_blob
from registry.distribution.request import (
    DataPlaneRequest,
    etag,
    is_not_modified,
    range_still_holds,
    require_match,
)
from registry.distribution.response import BULK_BYTES, BlobBody, Headers, Response, empty
from registry.errors import BlobUnknown, NameUnknown
from registry.oci.digest import Digest
from registry.services.blobs import reading
from registry.services.blobs.links import detach_blob
from registry.services.blobs.reading import FoundBlob
from registry.services.context import ServiceContext
from registry.services.pull_through import missing_blobs

_OCTETS: Final = (b"content-type", b"application/octet-stream")
_RANGES: Final = (b"accept-ranges", b"bytes")
_CACHE: Final = (b"cache-control", b"private, max-age=31536000, immutable")


class _Part(NamedTuple):
    """What to send of a blob in the response to a GET: one range, or several."""

    status: int
    headers: Headers
    start: int
    stop: int
    ranges: byteranges.ByteRanges | None = None
    """Several ranges of the blob to send, instead of the one from `start` to `stop`."""


async def get_blob(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-2: return a blob or a range of it; HEAD renews the grace period of an unused blob."""
    digest = request.digest
    try:
        found = await reading.stat_blob(ctx, request.name, digest, keep=request.is_head)
    except (BlobUnknown, NameUnknown) as missing:
        if ctx.upstream is None:
            raise
        return await _get_missing(ctx, request, digest, missing)
    return await _get_stored(ctx, request, digest, found)


async def delete_blob(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-10: unlink a blob; the collector deletes its bytes."""
    require_match(request, request.digest)
    await ctx.database.write(detach_blob, request.name, request.digest, request.change(ctx))
    return empty(202)


async def _get_stored(
    ctx: ServiceContext, request: DataPlaneRequest, digest: Digest, found: FoundBlob
) -> Response:
    """Return the response for a blob that the repository has."""
    require_match(request, digest)
    keep = kept_blob(ctx, request, digest, found)
    if is_not_modified(request, digest):
        return Response(304, _named(digest), keep=keep)
    if request.is_head:
        return _described(digest, found.link.size)._replace(keep=keep)
    status, headers, start, stop, ranges = _part(request, digest, found.link.size)
    if ranges is None and (url := await _link(ctx, request, found)) is not None:
        ctx.pulls.cache.served(found.link.repository_id, stop - start)
        return _redirect(digest, url)
    blob = await reading.open_blob(ctx, request.name, found)
    if ranges is not None:
        return _in_parts(ctx, request, found, blob, headers, ranges)
    served = partial(ctx.pulls.cache.served, found.link.repository_id, stop - start)
    served()
    if isinstance(blob, InlineObject):
        keep = keep and keep._replace(noted=served)
        return Response(status, headers, blob.in_memory(start, stop), keep=keep)
    body = BlobBody(blob, start, stop)
    if found.data_key is not None and start < stop < start + BULK_BYTES:
        parts = await reading.begin_range(ctx, request.name, found, blob, start, stop)
        body = body._replace(parts=parts)
    check_after_failure = partial(reading.check_after_failure, ctx, request.name, found)
    return Response(status, headers, body, check_after_failure)


async def _link(ctx: ServiceContext, request: DataPlaneRequest, found: FoundBlob) -> str | None:
    """Return a URL at which the client can fetch the bytes from the store; None if there is none.

    A conditional request gets None: the client would send its conditions to the store too, whose
    entity tags are different.
    """
    if request.header(b"if-match") is not None or request.header(b"if-range") is not None:
        return None
    return await reading.link_to_blob(ctx, request.name, found)


def _redirect(digest: Digest, url: str) -> Response:
    """Redirect the client to a URL that expires soon; the redirect must not be cached."""
    named = (b"docker-content-digest", digest.encode())
    return empty(307, (b"location", url.encode()), (b"cache-control", b"no-store"), named)


def _in_parts(
    ctx: ServiceContext,
    request: DataPlaneRequest,
    found: FoundBlob,
    blob: OpenObject,
    headers: Headers,
    ranges: byteranges.ByteRanges,
) -> Response:
    """Return a 206 response with several ranges of a blob."""
    ctx.pulls.cache.served(found.link.repository_id, ranges.covered)
    if isinstance(blob, InlineObject):
        return Response(206, headers, byteranges.in_memory(blob, ranges))
    check_after_failure = partial(reading.check_after_failure, ctx, request.name, found)
    return Response(206, headers, byteranges.RangesBody(blob, ranges), check_after_failure)


async def _get_missing(
    ctx: ServiceContext,
    request: DataPlaneRequest,
    digest: Digest,
    missing: BlobUnknown | NameUnknown,
) -> Response:
    """Return the response for a blob that the repository must get from its upstream."""
    if request.is_head:
        size = await missing_blobs.size_of_missing_blob(ctx, request.name, digest, missing)
        require_match(request, digest)
        if is_not_modified(request, digest):
            return Response(304, _named(digest))
        return _described(digest, size)
    found = await missing_blobs.get_missing_blob(ctx, request.name, digest, missing)
    if not isinstance(found, missing_blobs.FedBlob):
        return await _get_stored(ctx, request, digest, found)
    async with AsyncExitStack() as unless_sent:
        unless_sent.push_async_callback(found.blob.aclose)
        require_match(request, digest)
        if is_not_modified(request, digest):
            return Response(304, _named(digest))
        status, headers, start, stop, _ = _part(request, digest, found.size, takes_several=False)
        unless_sent.pop_all()
    ctx.pulls.cache.served(found.repository_id, stop - start)
    return Response(status, headers, BlobBody(found.blob, start, stop))


def _named(digest: Digest) -> Headers:
    return [etag(digest), _CACHE, (b"docker-content-digest", digest.encode())]


def _described(digest: Digest, size: int) -> Response:
    """Return the response to HEAD."""
    length = (b"content-length", b"%d" % size)
    return Response(200, [length, _OCTETS, _RANGES, *_named(digest)])


def _part(
    request: DataPlaneRequest, digest: Digest, size: int, *, takes_several: bool = True
) -> _Part:
    """Return the part of a blob that a request wants; several parts only if it `takes_several`.

    Raise RangeUnsatisfiable if the requested range has no byte of the blob.
    """
    span = None
    if range_still_holds(request, digest):
        header = request.header(b"range")
        span = byteranges.parse_range(header, size)
        if takes_several and span is None and header is not None and "," in header:
            ranges = byteranges.parse_ranges(header, size)
            if len(ranges) > 1 and (found := _several(digest, ranges, size)) is not None:
                return found
            span = ranges[0] if len(ranges) == 1 else None
    start, stop = span or (0, size)
    headers = [_OCTETS, _RANGES, *_named(digest), (b"content-length", b"%d" % (stop - start))]
    if span is not None:
        headers.append((b"content-range", b"bytes %d-%d/%d" % (start, stop - 1, size)))
    return _Part(206 if span else 200, headers, start, stop)


def _several(digest: Digest, ranges: list[tuple[int, int]], size: int) -> _Part | None:
    """Return several ranges of a blob; None if the whole blob costs less (RFC 9110 §14.2)."""
    found = byteranges.byte_ranges(ranges, size)
    if found.cost_more_than_all(size):
        return None
    headers = [
        (b"content-type", found.content_type),
        (b"content-length", b"%d" % found.length),
        _RANGES,
        *_named(digest),
    ]
    return _Part(206, headers, 0, size, found)
