"""Responses of the data plane, sent from memory or from a file by the kernel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

from cloudcore.serving.asgi import Scope, Send
from cloudcore.serving.kept_answers import EXTENSION as KEEP
from cloudcore.serving.kept_answers import KeepTerms
from registry.blobstore.base import OpenObject
from registry.distribution.byteranges import RangesBody, send_part, send_ranges

Headers = list[tuple[bytes, bytes]]

API_VERSION: Final = (b"docker-distribution-api-version", b"registry/2.0")
BULK_BYTES: Final = 1024 * 1024
"""Size from which a body is made in a bulk thread, if ``sendfile`` cannot send it."""
_JSON: Final = (b"content-type", b"application/json")


class BlobBody(NamedTuple):
    """Bytes ``[start, stop)`` of an open blob, which is closed once they are sent."""

    blob: OpenObject
    start: int
    stop: int
    parts: AsyncIterator[bytes] | None = None
    """Yields these bytes, if the first part was read before the response began; else None."""


class Response(NamedTuple):
    """A response: status, headers and body."""

    status: int
    headers: Headers
    body: bytes | BlobBody | RangesBody = b""
    on_failure: Callable[[Exception], Awaitable[None]] | None = None
    """Called with the error if sending the response fails."""
    keep: KeepTerms | None = None
    """How the server may reuse the response; None if it may not."""


def json_headers(body: bytes) -> Headers:
    """Return the headers of a JSON body."""
    return [_JSON, (b"content-length", b"%d" % len(body))]


def json_response(body: bytes, *more: tuple[bytes, bytes]) -> Response:
    """Return a 200 with a JSON body."""
    return Response(200, [*json_headers(body), *more], body)


def empty(status: int, *headers: tuple[bytes, bytes]) -> Response:
    """Return a response without a body."""
    return Response(status, [(b"content-length", b"0"), *headers])


async def send_response(scope: Scope, send: Send, response: Response, request_id: bytes) -> None:
    """Send a response; for a HEAD request, its headers only.

    Raise an error if a file turns out shorter than the ``Content-Length`` already sent; the server
    then closes the connection.
    """
    body = response.body
    start = {
        "type": "http.response.start",
        "status": response.status,
        "headers": [*response.headers, API_VERSION, (b"x-request-id", request_id)],
    }
    if response.keep is not None:
        start[KEEP] = response.keep
    try:
        await send(start)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
        elif isinstance(body, bytes):
            await send({"type": "http.response.body", "body": body})
        elif isinstance(body, BlobBody):
            await _send_blob(scope, send, body)
        else:
            await send_ranges(scope, send, body)
    except Exception as error:
        if response.on_failure is not None:
            await response.on_failure(error)
        raise
    finally:
        if not isinstance(body, bytes):
            await body.blob.aclose()


async def _send_blob(scope: Scope, send: Send, body: BlobBody) -> None:
    """Send a blob's bytes: as they arrive while the blob grows, then like those of a stored one."""
    blob, start, stop, parts = body
    if parts is not None:
        await _send_parts(send, parts)
        return
    if blob.length is None:
        async for part in blob.growing(start, stop):
            start += len(part)
            await send_part(send, part)
        if start == stop:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        blob = await blob.whole()
    await _send_whole(scope, send, blob, start, stop)


async def _send_whole(scope: Scope, send: Send, blob: OpenObject, start: int, stop: int) -> None:
    """Send the bytes of a stored blob in the fastest way that the server has.

    By ``sendfile`` if they are plain in a file. Otherwise decrypt them: many in a bulk thread, few
    on the event loop.
    """
    extensions = scope.get("extensions", {})
    region = blob.file_region(start, stop)
    if region is not None and "http.response.zerocopysend" in extensions:
        await send(region.message())
        return
    count = stop - start
    if region is None and count >= BULK_BYTES and "entrepot.send_parts" in extensions:
        await send(
            {
                "type": "entrepot.send_parts",
                "parts": lambda skipped: blob.shared_chunks(start + skipped, stop),
                "count": count,
            }
        )
        return
    await _send_parts(send, blob.stream(start, stop))


async def _send_parts(send: Send, parts: AsyncIterator[bytes]) -> None:
    async for part in parts:
        await send_part(send, part)
    await send({"type": "http.response.body", "body": b"", "more_body": False})
