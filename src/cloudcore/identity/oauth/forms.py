"""Parse requests of OAuth clients strictly: the form, and the client's credentials.

A parameter must not be repeated; one without a value counts as absent (RFC 6749 §3.2). The client
names itself in the form or by HTTP Basic, never both (§2.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cloudcore.errors import InvalidInput
from cloudcore.identity.oauth.errors import wrong_client
from cloudcore.serving.clients import decode_basic
from cloudcore.web.query import decode_text, parse_fields

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
        """Return True if it is a public client, which has no secret."""
        return self.id in PUBLIC and self.secret is None


def parse_form(content_types: Sequence[bytes], body: bytes) -> Form:
    """Parse the parameters of a form.

    Raise `InvalidInput` if it is not a form, not UTF-8, repeats a parameter, or has too many.
    """
    if len(content_types) != 1 or not _FORM.fullmatch(content_types[0]):
        raise InvalidInput("send a form: Content-Type: application/x-www-form-urlencoded")
    return parse_parameters(body)


def parse_parameters(encoded: bytes) -> Form:
    """Parse the parameters of a form or query string; see `parse_form`."""
    return dict(
        parse_fields(encoded, max_fields=MAX_PARAMETERS, counts_empty=False, unambiguous=True)
    )


def parse_client(authorizations: Sequence[bytes], form: Form) -> OAuthClient:
    """Return the client that the request names, by HTTP Basic or in the form.

    Some clients percent-encode ids and secrets in Basic, others do not. Ours hold no character that
    decoding would change, so decoding is right for both.

    Raise `InvalidInput` if the client authenticates in two ways, `Unauthenticated` if the header is
    not valid Basic.
    """
    form_id, form_secret = form.get("client_id") or None, form.get("client_secret") or None
    if not authorizations:
        return OAuthClient(form_id, form_secret)
    if len(authorizations) > 1 or form_secret is not None:
        raise InvalidInput("the client authenticates in more than one way")
    client_id, secret = _basic(authorizations[0])
    if form_id not in (None, client_id):
        raise InvalidInput("the form and the header name different clients")
    return OAuthClient(client_id, secret or None)


def required(form: Form, name: str) -> str:
    """Return a parameter's value; raise InvalidInput if it is missing."""
    value = form.get(name)
    if not value:
        raise InvalidInput(f"{name} is missing")
    return value


def values_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return all values of a header, by its name in lower case."""
    return [value for found, value in headers if found == name]


def _basic(header: bytes) -> tuple[str, str]:
    pair = decode_basic(header)
    if pair is None:
        raise wrong_client()
    try:
        return decode_text(pair[0], unambiguous=True), decode_text(pair[1], unambiguous=True)
    except InvalidInput:
        raise wrong_client() from None
