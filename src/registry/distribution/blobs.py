"""Pull, check and unlink blobs."""

from __future__ import annotations

from functools import partial
from typing import Final

from registry.blobstore.inline import InlineObject
from registry.distribution.conditions import (
    etag,
    is_not_modified,
    range_still_holds,
    require_match,
)
from registry.distribution.kept_answers import kept_blob
from registry.distribution.ranges import parse_range
from registry.distribution.request import DataPlaneRequest
from registry.distribution.response import BlobBody, Response, empty
from registry.services.blobs import reading
from registry.services.blobs.links import detach_blob
from registry.services.context import ServiceContext

_OCTETS: Final = (b"content-type", b"application/octet-stream")
_RANGES: Final = (b"accept-ranges", b"bytes")
_CACHE: Final = (b"cache-control", b"private, max-age=31536000, immutable")


async def get_blob(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-2: return a blob or a range of it; HEAD renews the grace period of an unused blob."""
    digest = request.digest
    found = await reading.stat_blob(ctx, request.name, digest, keep=request.is_head)
    link = found.link
    require_match(request, digest)
    named = [etag(digest), _CACHE, (b"docker-content-digest", digest.encode())]
    keep = kept_blob(ctx, request, digest, found)
    if is_not_modified(request, digest):
        return Response(304, named, keep=keep)
    headers = [_OCTETS, _RANGES, *named]
    if request.is_head:
        return Response(200, [(b"content-length", b"%d" % link.size), *headers], keep=keep)
    span = None
    if range_still_holds(request, digest):
        span = parse_range(request.header(b"range"), link.size)
    start, stop = span or (0, link.size)
    headers.append((b"content-length", b"%d" % (stop - start)))
    if span is not None:
        headers.append((b"content-range", b"bytes %d-%d/%d" % (start, stop - 1, link.size)))
    blob = await reading.open_blob(ctx, request.name, found)
    ctx.pulls.cache.served(link.repository_id, stop - start)
    if isinstance(blob, InlineObject):
        return Response(206 if span else 200, headers, blob.in_memory(start, stop), keep=keep)
    look_again = partial(reading.look_again, ctx, request.name, found)
    return Response(206 if span else 200, headers, BlobBody(blob, start, stop), look_again)


async def delete_blob(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-10: unlink a blob; the collector deletes its bytes."""
    require_match(request, request.digest)
    await ctx.database.write(detach_blob, request.name, request.digest, request.change(ctx))
    return empty(202)
