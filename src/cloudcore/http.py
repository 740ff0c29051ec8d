"""The glue to Litestar: one application, one way errors are answered, one request id."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ControllerRouterHandler

from cloudcore import errors
from cloudcore.envelope import render

_log = logging.getLogger(__name__)


def create_app(handlers: Sequence[ControllerRouterHandler]) -> Litestar:
    """Return the control plane's application over `handlers`.

    Litestar's own refusals (unknown route, wrong method, bad body) come in our envelope too.
    """
    return Litestar(
        route_handlers=handlers,
        openapi_config=None,
        logging_config=None,
        exception_handlers={Exception: _answer_error},
    )


def request_id(request: Request[Any, Any, Any]) -> str:
    """Return the id of a request, made here when no one in front of us made one."""
    state = request.scope.setdefault("state", {})
    made: str = state.setdefault("request_id", str(uuid4()))
    return made


def _answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    ident = request_id(request)
    known = _platform_error(error)
    if known is None:
        _log.error("unexpected failure", exc_info=error, extra={"request_id": ident})
        known = errors.PlatformError("")
    status, body = render(known, ident)
    headers = {"X-Request-Id": ident}
    if isinstance(known, errors.Unavailable):
        headers["Retry-After"] = str(known.retry_after)
    if isinstance(known, errors.MethodNotAllowed):
        headers["Allow"] = known.allow
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def _platform_error(error: Exception) -> errors.PlatformError | None:
    """Return our name for what happened; None when it is a bug."""
    if isinstance(error, errors.PlatformError):
        return error
    if not isinstance(error, HTTPException) or error.status_code >= 500:
        return None
    match error.status_code:
        case 404:
            return errors.NotFound("there is nothing at this path")
        case 405:
            allow = (error.headers or {}).get("allow", "")
            return errors.MethodNotAllowed("the path does not take this method", allow=allow)
        case 413:
            return errors.PayloadTooLarge("the body is too large")
        case _:
            return errors.InvalidInput("the request cannot be read")
