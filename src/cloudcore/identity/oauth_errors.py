"""What the token endpoint refuses, and how it says so: ``{error, error_description}`` (RFC 6749).

Two refusals look alike and have opposite remedies: `invalid_client` says the credential is wrong,
so replace it; `unauthorized_client` says it is right and may not be used now, so keep it.
"""

from __future__ import annotations

from typing import Final

from cloudcore import errors
from cloudcore.web.envelope import ErrorShape
from cloudcore.wire import ResponseBody


class InvalidGrant(errors.InvalidInput):
    """A code or refresh token is wrong, over, spent, or another's."""


class UnauthorizedClient(errors.InvalidInput):
    """The client's credential is right, and not good for this now."""


class UnsupportedGrantType(errors.InvalidInput):
    """No such way to a token."""


class InvalidScope(errors.InvalidInput):
    """Scopes are asked for; rights come from policies alone."""


TABLE: Final[dict[type[errors.PlatformError], tuple[int, str]]] = {
    errors.PlatformError: (500, "server_error"),
    errors.InvalidInput: (400, "invalid_request"),
    InvalidGrant: (400, "invalid_grant"),
    UnauthorizedClient: (400, "unauthorized_client"),
    UnsupportedGrantType: (400, "unsupported_grant_type"),
    InvalidScope: (400, "invalid_scope"),
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
    """Return the status and body that tell an OAuth client of `error`."""
    status, code = next(TABLE[base] for base in type(error).__mro__ if base in TABLE)
    words = "the service failed" if status == 500 else error.message
    return status, {"error": code, "error_description": words}


OAUTH_SHAPE: Final = ErrorShape(render, OAuthError, {"Cache-Control": "no-store"})
