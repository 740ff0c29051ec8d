"""Render errors as OCI error lists (distribution-spec, "Error Codes")."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

import msgspec

from cloudcore import errors as platform
from cloudcore.serving.asgi import Scope, Send
from registry import errors as registry
from registry.distribution.response import Headers, Response, json_headers, send_response

TABLE: Final[dict[type[platform.PlatformError], tuple[int, str]]] = {
    platform.PlatformError: (500, "UNKNOWN"),
    platform.InvalidInput: (400, "UNSUPPORTED"),
    platform.Unauthenticated: (401, "UNAUTHORIZED"),
    platform.AccessDenied: (403, "DENIED"),
    platform.NotFound: (404, "NAME_UNKNOWN"),
    platform.Conflict: (409, "DENIED"),
    platform.PayloadTooLarge: (413, "SIZE_INVALID"),
    platform.UnsupportedMediaType: (415, "UNSUPPORTED"),
    platform.MethodNotAllowed: (405, "UNSUPPORTED"),
    platform.IdempotencyKeyReused: (422, "UNSUPPORTED"),
    platform.EmailRateExceeded: (429, "TOOMANYREQUESTS"),
    platform.RateLimited: (429, "TOOMANYREQUESTS"),
    platform.Unavailable: (503, "UNKNOWN"),
    registry.NameInvalid: (400, "NAME_INVALID"),
    registry.TagInvalid: (400, "MANIFEST_INVALID"),
    registry.DigestInvalid: (400, "DIGEST_INVALID"),
    registry.SizeInvalid: (400, "SIZE_INVALID"),
    registry.RangeInvalid: (400, "BLOB_UPLOAD_INVALID"),
    registry.RangeUnsatisfiable: (416, "SIZE_INVALID"),
    registry.ListQueryInvalid: (400, "UNSUPPORTED"),
    registry.ManifestInvalid: (400, "MANIFEST_INVALID"),
    registry.NameUnknown: (404, "NAME_UNKNOWN"),
    registry.ManifestUnknown: (404, "MANIFEST_UNKNOWN"),
    registry.BlobUnknown: (404, "BLOB_UNKNOWN"),
    registry.UploadUnknown: (404, "BLOB_UPLOAD_UNKNOWN"),
    registry.ManifestBlobUnknown: (404, "MANIFEST_BLOB_UNKNOWN"),
    registry.ExtensionUnknown: (404, "UNSUPPORTED"),
    registry.KmsKeyDeleted: (404, "DENIED"),
    registry.KmsKeyDisabled: (403, "DENIED"),
    registry.TagImmutable: (409, "DENIED"),
    registry.TagDeleteForbidden: (405, "UNSUPPORTED"),
    registry.ManifestReferenced: (405, "UNSUPPORTED"),
    registry.BlobReferenced: (405, "UNSUPPORTED"),
    registry.UploadBusy: (409, "BLOB_UPLOAD_INVALID"),
    registry.UploadOutOfOrder: (416, "BLOB_UPLOAD_INVALID"),
    registry.RepositoryMirrored: (405, "UNSUPPORTED"),
    platform.PreconditionFailed: (412, "DENIED"),
    registry.ManifestTooLarge: (413, "MANIFEST_INVALID"),
    registry.BlobTooLarge: (413, "SIZE_INVALID"),
    registry.TooManyUploads: (429, "TOOMANYREQUESTS"),
    registry.TooManyTags: (400, "UNSUPPORTED"),
    registry.TokenRequired: (401, "UNAUTHORIZED"),
    registry.TokenDenied: (403, "DENIED"),
}
"""Statuses and codes: code-1 to code-14 and, for a 5xx, the reference server's ``UNKNOWN``.

A 503 has this code too: Docker aborts a push on most of the 14 codes, and retries on ``UNKNOWN``.
"""


def rendering(error: type[platform.PlatformError]) -> tuple[int, str]:
    """Return the HTTP status and error code of a class, or of its nearest ancestor in `TABLE`."""
    return next(TABLE[base] for base in error.__mro__ if base in TABLE)


def render(error: platform.PlatformError) -> Response:
    """Return the response for `error`."""
    status, code = rendering(type(error))
    if isinstance(error, registry.ManifestBlobUnknown):
        items = _absent(code, error)
    else:
        items = [_item(code, error.message, error.params or None)]
    body = msgspec.json.encode({"errors": items})
    headers = json_headers(body)
    headers.extend(_extra_headers(error))
    return Response(status, headers, body)


def head_warning(error: platform.PlatformError) -> Headers:
    """Return a ``Warning`` header that says why a HEAD request is denied (distribution-spec).

    Return no header for other errors. The response to HEAD has no body, and clients that begin a
    push with HEAD show only the warning.
    """
    if isinstance(error, registry.TokenDenied | registry.KmsKeyDisabled):
        return [(b"warning", f'299 - "{error.message}"'.encode())]
    return []


def internal_error() -> Response:
    """Return the response to an unexpected exception, without its details, which are in the log."""
    return render(platform.PlatformError("the registry failed; the log has this request's id"))


def server_refusal(status: int, message: str, _request_id: str) -> bytes:
    """Return the body of an error that the HTTP server answers itself, before the data plane."""
    return msgspec.json.encode(
        {"errors": [_item("UNKNOWN" if status >= 500 else "UNSUPPORTED", message, None)]}
    )


async def refuse(scope: Scope, send: Send, error: platform.PlatformError) -> None:
    """Send the response for `error`; for applications that wrap the data plane."""
    request_id = str(scope.get("state", {}).get("request_id") or uuid4())
    await send_response(scope, send, render(error), request_id.encode())


def _absent(code: str, error: registry.ManifestBlobUnknown) -> list[dict[str, Any]]:
    """Return an error item for each of the first missing digests, then one with the total."""
    shown = error.digests[: registry.MOST_SHOWN]
    items = [_item(code, error.message, {"digest": digest}) for digest in shown]
    count = len(error.digests)
    if count > len(shown):
        message = f"{count} digests are not in this repository; the first {len(shown)} are named"
        items.append(_item(code, message, {"count": count}))
    return items


def _item(code: str, message: str, detail: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"code": code, "message": message, "detail": detail}


def _extra_headers(error: platform.PlatformError) -> list[tuple[bytes, bytes]]:
    match error:
        case registry.TokenRequired() | registry.TokenDenied():
            return [(b"www-authenticate", error.challenge.encode())]
        case platform.MethodNotAllowed():
            return [(b"allow", error.allow.encode())]
        case platform.Unavailable() | platform.RateLimited():
            return [(b"retry-after", b"%d" % error.retry_after)]
        case registry.RangeUnsatisfiable():
            return [(b"content-range", b"bytes */%d" % error.size)]
        case registry.UploadBusy():
            return [(b"retry-after", b"1")]
        case _:
            return []
