"""Parse requests of OAuth clients strictly, both the form and the client's credentials.

A parameter must not be repeated; one without a value counts as absent (RFC 6749 §3.2). The client
sends its credentials in the form or by HTTP Basic, never both (§2.3). Errors of the token endpoints
are ``{error, error_description}`` (§5.2). `invalid_client` means that the credential is wrong and
must be replaced. `unauthorized_client` means that the credential is right, but may not be used now;
the client should keep it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from cloudcore import errors
from cloudcore.serving.clients import decode_basic
from cloudcore.web.envelope import ErrorShape
from cloudcore.web.query import decode_text, parse_fields
from cloudcore.wire import ResponseBody

MAX_FORM_BYTES: Final = 64 * 1024
CLI: Final = "cli"
"""The command line, a public client."""
CONSOLE: Final = "console"
"""This install's web console, a public client."""
PUBLIC: Final = frozenset({CLI, CONSOLE})
"""The public clients (RFC 6749 §2.1), which persons use."""

_FORM: Final = re.compile(
    rb'application/x-www-form-urlencoded(?:[ \t]*;[ \t]*charset="?utf-8"?)?[ \t]*', re.IGNORECASE
)
MAX_PARAMETERS: Final = 32

Form = dict[str, str]


class OAuthClient(NamedTuple):
    """The client's credentials as sent, not yet verified."""

    id: str | None = None
    secret: str | None = None

    @property
    def is_public(self) -> bool:
        """Return True if this is a public client, which has no secret."""
        return self.id in PUBLIC and self.secret is None


def parse_form(
    content_types: Sequence[bytes], body: bytes, max_fields: int = MAX_PARAMETERS
) -> Form:
    """Parse the parameters of a form.

    Raise `InvalidInput` if it is not a form, not UTF-8, repeats a parameter, or has too many.
    """
    if len(content_types) != 1 or not _FORM.fullmatch(content_types[0]):
        raise errors.InvalidInput("send a form: Content-Type: application/x-www-form-urlencoded")
    return parse_parameters(body, max_fields)


def parse_parameters(encoded: bytes, max_fields: int = MAX_PARAMETERS) -> Form:
    """Parse the parameters of a form or query string; see `parse_form`."""
    return dict(parse_fields(encoded, max_fields=max_fields, counts_empty=False, unambiguous=True))


def parse_client(authorizations: Sequence[bytes], form: Form) -> OAuthClient:
    """Return the client credentials in a request, sent by HTTP Basic or in the form.

    Some clients percent-encode ids and secrets in Basic, others do not. The ids and secrets of this
    install contain no character that decoding would change, so decoding is right for both.

    Raise `InvalidInput` if the client authenticates in two ways, `Unauthenticated` if the header is
    not valid Basic.
    """
    form_id, form_secret = form.get("client_id") or None, form.get("client_secret") or None
    if not authorizations:
        return OAuthClient(form_id, form_secret)
    if len(authorizations) > 1 or form_secret is not None:
        raise errors.InvalidInput("the client authenticates in more than one way")
    client_id, secret = _basic(authorizations[0])
    if form_id not in (None, client_id):
        raise errors.InvalidInput("the form and the header name different clients")
    return OAuthClient(client_id, secret or None)


def required(form: Form, name: str) -> str:
    """Return a parameter's value; raise `InvalidInput` if it is missing."""
    value = form.get(name)
    if not value:
        raise errors.InvalidInput(f"{name} is missing")
    return value


def _basic(header: bytes) -> tuple[str, str]:
    pair = decode_basic(header)
    if pair is None:
        raise wrong_client()
    try:
        return decode_text(pair[0], unambiguous=True), decode_text(pair[1], unambiguous=True)
    except errors.InvalidInput:
        raise wrong_client() from None


def wrong_client() -> errors.Unauthenticated:
    """Return the error for wrong client credentials; it does not tell what is wrong."""
    return errors.Unauthenticated("the client is unknown, or its secret is wrong")


OAuthCode = Literal[
    "invalid_grant", "invalid_scope", "unauthorized_client", "unsupported_grant_type"
]


class OAuthRefused(errors.InvalidInput):
    """A refusal with one of OAuth's own error codes (RFC 6749 §5.2)."""

    def __init__(self, code: OAuthCode, message: str) -> None:
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
    """Return (status, body) for `error` in the format of OAuth."""
    status, code = next(TABLE[base] for base in type(error).__mro__ if base in TABLE)
    code = error.code if isinstance(error, OAuthRefused) else code
    words = "the service failed" if status == 500 else error.message
    return status, {"error": code, "error_description": words}


OAUTH_SHAPE: Final = ErrorShape(render, OAuthError, {"Cache-Control": "no-store"})
