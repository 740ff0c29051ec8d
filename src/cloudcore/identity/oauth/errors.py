"""Refusals of the token endpoints: ``{error, error_description}`` (RFC 6749 §5.2).

`invalid_client` means that the credential is wrong: replace it; `unauthorized_client` that it is
right but may not be used now: keep it.
"""

from __future__ import annotations

from typing import Final

from cloudcore import errors
from cloudcore.web.envelope import ErrorShape
from cloudcore.wire import ResponseBody


def wrong_client() -> errors.Unauthenticated:
    """Return the error for wrong client credentials, the same whatever is wrong with them."""
    return errors.Unauthenticated("the client is unknown, or its secret is wrong")


class OAuthRefused(errors.InvalidInput):
    """A refusal with a code of its own in RFC 6749 §5.2, such as ``invalid_grant``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


TABLE: Final[dict[type[errors.PlatformError], tuple[int, str]]] = {
    errors.PlatformError: (500, "server_error"),
    errors.InvalidInput: (400, "invalid_request"),
    errors.Unauthenticated: (401, "invalid_client"),
    errors.MethodNotAllowed: (405, "invalid_request"),
    errors.PayloadTooLarge: (413, "invalid_request"),
    errors.Unavailable: (503, "temporarily_unavailable"),
}


class OAuthError(ResponseBody):
    """The body of every refusal of the token endpoint."""

    error: str
    error_description: str


def render(error: errors.PlatformError, _request_id: str = "") -> tuple[int, dict[str, str]]:
    """Return the status and body for `error` in OAuth's shape."""
    status, code = next(TABLE[base] for base in type(error).__mro__ if base in TABLE)
    if isinstance(error, OAuthRefused):
        code = error.code
    words = "the service failed" if status == 500 else error.message
    return status, {"error": code, "error_description": words}


OAUTH_SHAPE: Final = ErrorShape(render, OAuthError, {"Cache-Control": "no-store"})
