"""The responses of the S3 endpoint: XML documents, errors and objects, and how to send them.

XML is written by hand: keys may contain control characters, which ElementTree writes unescaped; S3
writes them as character references, which clients can read.

Proxies and clients close a silent connection. So the response to a long copy begins before the copy
ends, as in AWS: status 200, the XML declaration, and a space every `EVERY_SECONDS`, which XML
allows there. A document with the result follows. S3 clients read this document despite the status
200, as it may be an error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.errors import PlatformError, RangeNotSatisfiable
from cloudcore.serving.asgi import Scope, Send
from cloudcore.storage.s3.errors import STATUS_OF, S3Error

if TYPE_CHECKING:
    from cloudcore.storage.needs import OpenBytes
    from cloudcore.storage.object_rows import ObjectChecksum


NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPECIAL: Final = re.compile('[\x00-\x08\x0b-\x1f&<>"\x7f-\x9f\ufffe\uffff]')
_NAMED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def tag(name: str, *content: str) -> str:
    """Return an XML element that contains other elements."""
    return f"<{name}>{''.join(content)}</{name}>"


def text(name: str, value: str | int | bool) -> str:  # noqa: FBT001
    """Return an XML element that contains text."""
    if isinstance(value, bool):
        value = "true" if value else "false"
    return f"<{name}>{escape(str(value))}</{name}>"


def escape(value: str) -> str:
    """Escape a text for XML."""
    return _SPECIAL.sub(lambda found: _NAMED.get(found[0]) or f"&#x{ord(found[0]):x};", value)


def document(name: str, content: Iterable[str], *, namespace: bool = True) -> bytes:
    """Return a complete XML document, encoded as UTF-8."""
    opening = f'{name} xmlns="{NAMESPACE}"' if namespace else name
    return f"{DECLARATION}<{opening}>{''.join(content)}</{name}>".encode("utf-8", "replace")


Fields = list[tuple[str, str]]

_XML: Final = ("content-type", "application/xml")
_BULK_BYTES: Final = 1024 * 1024
"""Size from which a bulk thread produces a body that ``sendfile`` cannot send."""

# S3 error codes by the name of an exception class or of its base class (`s3_error`).
_CODES: Final = {
    "ConditionFailed": "PreconditionFailed",
    "InvalidPartNumber": "InvalidArgument",
    "KeyTooLong": "KeyTooLongError",
    "KeyDeleted": "KMS.NotFoundException",
    "KeyDisabled": "KMS.DisabledException",
    "NoSuchPart": "InvalidPartNumber",
    "BytesQuotaExceeded": "QuotaExceeded",
    "SizeDiffers": "InvalidRequest",
    "UnknownChecksum": "InvalidRequest",
    "AccessDenied": "AccessDenied",
    "Conflict": "OperationAborted",
    "InvalidInput": "InvalidArgument",
    "NotFound": "NoSuchKey",
    "PayloadTooLarge": "EntityTooLarge",
    "PreconditionFailed": "PreconditionFailed",
    "RateLimited": "SlowDown",
    "Unavailable": "ServiceUnavailable",
    "PlatformError": "InternalError",
}


class Answer(NamedTuple):
    """A response; its body is in memory, or is an open object, which is closed after sending."""

    status: int
    fields: Fields
    body: bytes | OpenBytes = b""
    parts: AsyncIterator[bytes] | None = None
    """The parts of an object's body if `is_streamed`; the first is already read."""


def empty(status: int = 200, fields: Iterable[tuple[str, str]] = ()) -> Answer:
    """Return a response without a body."""
    return Answer(status, [("content-length", "0"), *fields] if status != 204 else [*fields])


def xml(
    name: str,
    content: Iterable[str],
    fields: Iterable[tuple[str, str]] = (),
    *,
    status: int = 200,
    namespace: bool = True,
) -> Answer:
    """Return a response with an XML document."""
    body = document(name, content, namespace=namespace)
    return Answer(status, [_XML, ("content-length", str(len(body))), *fields], body)


def tagging(tags: Mapping[str, str]) -> Answer:
    """Return a response that lists tags."""
    shown = [tag("Tag", text("Key", key), text("Value", value)) for key, value in tags.items()]
    return xml("Tagging", [tag("TagSet", *shown)])


def checksum_texts(checksum: ObjectChecksum | None) -> list[str]:
    """Return the XML elements for a checksum: its value, and its type; empty for None."""
    if checksum is None:
        return []
    value = text(f"Checksum{checksum.algorithm}", checksum.value)
    return [value, text("ChecksumType", checksum.kind)]


def refusal(error: S3Error, resource: str, request_id: str) -> Answer:
    """Return the response for an error; `resource` is the request's path."""
    details = [text(name, value) for name, value in error.details.items()]
    return xml(
        "Error",
        [
            text("Code", error.code),
            text("Message", error.message),
            *details,
            text("Resource", resource),
            text("RequestId", request_id),
        ],
        error.headers.items(),
        status=error.status,
        namespace=False,
    )


def server_refusal(status: int, message: str, request_id: str) -> bytes:
    """Return the body of an error response that the HTTP server itself sends."""
    code = "InternalError" if status >= 500 else "InvalidRequest"
    body = refusal(S3Error(code, message), "", request_id).body
    assert isinstance(body, bytes)
    return body


def s3_error(error: PlatformError) -> S3Error:
    """Convert an error to an `S3Error`; the code is the class's name, unless `_CODES` has another.

    If there is no code for the class, that of the nearest base class is used.
    """
    names = [each.__name__ for each in type(error).__mro__]
    code = next(_CODES.get(name) or name for name in names if name in _CODES or name in STATUS_OF)
    retry_after = getattr(error, "retry_after", None)
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    if isinstance(error, RangeNotSatisfiable):
        headers["content-range"] = f"bytes */{error.size}"
    details = {"Condition": error.header} if hasattr(error, "header") else {}
    return S3Error(code, error.message, details=details, headers=headers)


def quoted(etag: str) -> str:
    """Return an ETag in quotes, as in headers and documents."""
    return f'"{etag}"'


def iso_time(microseconds: int) -> str:
    """Format a time for documents."""
    return _time(microseconds).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def http_time(microseconds: int) -> str:
    """Format a time for headers."""
    return format_datetime(_time(microseconds), usegmt=True)


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // MICROSECONDS, UTC)


async def send_answer(scope: Scope, send: Send, answer: Answer, request_id: str) -> None:
    """Send a response; for HEAD, only its headers.

    Raise `PlatformError` or `RuntimeError` if the bytes of an object cannot be read to their end.
    Then the server closes the connection, so that the client sees that the body is incomplete.
    """
    fields = [*answer.fields, ("x-amz-request-id", request_id), ("x-amz-id-2", request_id)]
    start = {
        "type": "http.response.start",
        "status": answer.status,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in fields],
    }
    body = answer.body
    try:
        await send(start)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
        elif isinstance(body, bytes):
            await send({"type": "http.response.body", "body": body})
        else:
            await _send_object(scope, send, body, answer.parts)
    finally:
        if not isinstance(body, bytes):
            await body.aclose()


def is_streamed(scope: Scope, body: OpenBytes) -> bool:
    """Return True if the event loop must send the bytes: no bulk thread or ``sendfile`` can."""
    extensions = scope.get("extensions", {})
    if body.length >= _BULK_BYTES and "entrepot.send_parts" in extensions:
        return False
    return "http.response.zerocopysend" not in extensions or body.file_region() is None


async def _send_object(
    scope: Scope, send: Send, body: OpenBytes, parts: AsyncIterator[bytes] | None
) -> None:
    if parts is not None:
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)  # with a fast reader, send() never waits
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    region = body.file_region()
    if region is None or "http.response.zerocopysend" not in scope["extensions"]:
        made = {"parts": body.chunks, "count": body.length}
        await send({"type": "entrepot.send_parts", **made})
        return
    await send(region.message())


EVERY_SECONDS: Final = 10.0
_COPY_SOURCE: Final = b"x-amz-copy-source"


def is_copy(scope: Scope) -> bool:
    """Return True if a request copies an object, or part of one."""
    return scope["method"] == "PUT" and any(name == _COPY_SOURCE for name, _ in scope["headers"])


async def send_when_copied(
    scope: Scope,
    send: Send,
    answering: Coroutine[Any, Any, Answer],
    request_id: str,
    every_seconds: float = EVERY_SECONDS,
) -> None:
    """Send the response of a copy; until it is ready, send a space every `every_seconds`."""
    task = asyncio.ensure_future(answering)
    try:
        await asyncio.wait({task}, timeout=every_seconds)
        if task.done():
            await send_answer(scope, send, task.result(), request_id)
            return
        fields = [(b"content-type", b"application/xml"), (b"x-amz-request-id", request_id.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        part = DECLARATION.encode()
        while not task.done():
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.wait({task}, timeout=every_seconds)
            part = b" "
        body = task.result().body
        assert isinstance(body, bytes), "a document"
        await send({"type": "http.response.body", "body": body.removeprefix(DECLARATION.encode())})
    finally:
        task.cancel()  # the client has left
        await asyncio.gather(task, return_exceptions=True)
