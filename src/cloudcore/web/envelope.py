"""The control plane's error envelope: ``{error: {code, message, request_id, params?}}``.

`cloudcore.error_codes` has the statuses and codes. A 5xx has no `params` and no details in its
message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
from msgspec import UNSET, UnsetType

from cloudcore import errors
from cloudcore.error_codes import TABLE, status_and_code
from cloudcore.resource_names import Uuid
from cloudcore.serving.asgi import Scope, Send
from cloudcore.wire import ResponseBody


def render(error: errors.PlatformError, request_id: str) -> tuple[int, dict[str, Any]]:
    """Return the status and body for `error`."""
    status, code = status_and_code(type(error))
    content: dict[str, Any] = {"code": code, "message": error.message, "request_id": request_id}
    if status >= 500 and code == "INTERNAL_ERROR":
        content["message"] = "the service failed; quote the request_id when you ask about it"
    elif error.params and status < 500:
        content["params"] = error.params
    return status, {"error": content}


_CODES: Final = dict(reversed(TABLE.values()))
"""A code for each status; of several error classes, the first in the table counts."""


def server_refusal(status: int, message: str, request_id: str) -> bytes:
    """Return the body for a refusal by the server itself, before any application runs."""
    code = _CODES.get(status, "INVALID_INPUT")
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
