"""The control plane's error envelope: ``{error: {code, message, request_id, params?}}``.

`TABLE` maps classes of `cloudcore.errors` to statuses and codes; the nearest base class wins. A 5xx
has no `params` and no details in its message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
from msgspec import UNSET, UnsetType

from cloudcore import errors
from cloudcore.resource_names import Uuid
from cloudcore.serving.asgi import Scope, Send
from cloudcore.wire import ResponseBody

TABLE: Final[dict[type[errors.PlatformError], tuple[int, str]]] = {
    errors.PlatformError: (500, "INTERNAL_ERROR"),
    errors.InvalidInput: (400, "INVALID_INPUT"),
    errors.Unauthenticated: (401, "UNAUTHORIZED"),
    errors.AccessDenied: (403, "ACCESS_DENIED"),
    errors.QuotaExceeded: (403, "QUOTA_EXCEEDED"),
    errors.NotFound: (404, "NOT_FOUND"),
    errors.Conflict: (409, "CONFLICT"),
    errors.PreconditionFailed: (412, "PRECONDITION_FAILED"),
    errors.PayloadTooLarge: (413, "PAYLOAD_TOO_LARGE"),
    errors.RangeNotSatisfiable: (416, "RANGE_NOT_SATISFIABLE"),
    errors.UnsupportedMediaType: (415, "UNSUPPORTED_MEDIA_TYPE"),
    errors.MethodNotAllowed: (405, "METHOD_NOT_ALLOWED"),
    errors.IdempotencyKeyReused: (422, "IDEMPOTENCY_KEY_REUSED"),
    errors.PaymentDeclined: (402, "PAYMENT_DECLINED"),
    errors.InvoicePaymentAttemptsExhausted: (429, "INVOICE_PAYMENT_ATTEMPTS_EXHAUSTED"),
    errors.EmailRateExceeded: (429, "EMAIL_RATE_LIMIT"),
    errors.RateLimited: (429, "RATE_LIMITED"),
    errors.KeyBeingMade: (429, "KEY_BEING_MADE"),
    errors.TooManyAttempts: (429, "TOO_MANY_ATTEMPTS"),
    errors.TooManyConfirmations: (429, "TOO_MANY_CONFIRMATIONS"),
    errors.Unavailable: (503, "SERVICE_UNAVAILABLE"),
}


def rendering(error: type[errors.PlatformError]) -> tuple[int, str]:
    """Return the status and code of an error class, from its nearest base class in the table."""
    return next(TABLE[base] for base in error.__mro__ if base in TABLE)


def render(error: errors.PlatformError, request_id: str) -> tuple[int, dict[str, Any]]:
    """Return the status and body for `error`."""
    status, code = rendering(type(error))
    content: dict[str, Any] = {"code": code, "message": error.message, "request_id": request_id}
    if status >= 500 and code == "INTERNAL_ERROR":
        content["message"] = "the service failed; quote the request_id when you ask about it"
    elif error.params and status < 500:
        content["params"] = error.params
    return status, {"error": content}


_SERVER_CODES: Final[dict[int, str]] = {
    HTTPStatus.METHOD_NOT_ALLOWED: "METHOD_NOT_ALLOWED",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "PAYLOAD_TOO_LARGE",
    HTTPStatus.INTERNAL_SERVER_ERROR: "INTERNAL_ERROR",
    HTTPStatus.SERVICE_UNAVAILABLE: "SERVICE_UNAVAILABLE",
}


def server_refusal(status: int, message: str, request_id: str) -> bytes:
    """Return the body of a refusal by the server itself, before any application."""
    code = _SERVER_CODES.get(status, "INVALID_INPUT")
    error = {"code": code, "message": message, "request_id": request_id}
    return msgspec.json.encode({"error": error})


def messages(error: errors.PlatformError, request_id: str) -> tuple[Any, Any]:
    """Return the two ASGI messages of an error response."""
    status, content = render(error, request_id)
    body = msgspec.json.encode(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body, "more_body": False},
    )


async def refuse(scope: Scope, send: Send, error: errors.PlatformError) -> None:
    """Send an error response from ASGI middleware."""
    request_id = str(scope.get("state", {}).get("request_id") or uuid4())
    start, body = messages(error, request_id)
    start["headers"].append((b"x-request-id", request_id.encode()))
    await send(start)
    await send({**body, "body": b"" if scope["method"] == "HEAD" else body["body"]})


class ErrorDetail(ResponseBody):
    """What went wrong."""

    code: str
    message: str
    request_id: Uuid
    params: dict[str, Any] | UnsetType = UNSET
    """Never on a 5xx."""


class Error(ResponseBody):
    """The body of every refusal."""

    error: ErrorDetail


class ErrorShape(NamedTuple):
    """The shape of error responses: render function, body type, and headers."""

    render: Callable[[errors.PlatformError, str], tuple[int, Any]]
    """Called with the error and the request id; returns status and body."""
    schema: type[ResponseBody]
    headers: Mapping[str, str] = {}


ENVELOPE: Final = ErrorShape(render, Error)
