"""Read an authorization request (RFC 6749 §4.1.1, RFC 7636 §4.3), and decide who is told a refusal.

Once the client and its address are known to be right, that address is told by a redirect
(RFC 6749 §4.1.2.1). No other address ever is, and there is none where the code is shown to be
copied: there the person is told, on a page.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlencode

from cloudcore.errors import InvalidInput
from cloudcore.identity.oauth_forms import CLI, CONSOLE, MAX_PARAMETERS, Form, parse_parameters
from cloudcore.identity.sessions import OUT_OF_BAND, Destination
from cloudcore.web.urlencoded import parse_fields

_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # of S256, RFC 7636 §4.2
_STATE: Final = re.compile(r"[!-~]{0,512}")
_SIGNED_IN: Final = "/console/signed-in"
_LOOPBACK: Final = re.compile(r"http://(?:127[.]0[.]0[.]1|\[::1\]):([1-9][0-9]{0,4})/callback")
_NOT_UTF8: Final = "\N{REPLACEMENT CHARACTER}"


class AuthorizationRequest(NamedTuple):
    """What a client asks for."""

    destination: Destination
    code_challenge: str
    state: str


class RequestRefused(InvalidInput):
    """A request that is refused by a redirect to `location`."""

    def __init__(self, destination: Destination, state: str, code: str, message: str) -> None:
        """Refuse with an error `code` of RFC 6749 §4.1.2.1; `state` comes back as it was sent."""
        super().__init__(message)
        told = {"error": code, "error_description": message} | ({"state": state} if state else {})
        self.location = f"{destination.redirect_uri}?{urlencode(told)}"


def read_request(console_url: str, encoded: bytes) -> AuthorizationRequest:
    """Read the query of an authorization request; `console_url` is this install's.

    Raises:
        RequestRefused: a parameter is not supported, or given more than once.
        InvalidInput: as it; or the client or its address is not known. No address may be told.

    """
    sent = _values(encoded)
    destination = _destination(console_url, _only(sent, "client_id"), _only(sent, "redirect_uri"))
    try:
        query = parse_parameters(encoded)
        _check_type(query)
        return AuthorizationRequest(destination, *_checked(query, destination))
    except InvalidInput as error:
        if destination.redirect_uri == OUT_OF_BAND:
            raise
        code = "unsupported_response_type" if isinstance(error, _OtherType) else "invalid_request"
        state = _only(sent, "state")
        state = "" if _NOT_UTF8 in state else state
        raise RequestRefused(destination, state, code, error.message) from None


class _OtherType(InvalidInput):
    """The client asked for no code."""


def _values(encoded: bytes) -> dict[str, list[str]]:
    """Return the values of each parameter, also of a query that is refused."""
    found: dict[str, list[str]] = {}
    fields = parse_fields(
        encoded, max_fields=MAX_PARAMETERS, counts_empty=False, not_utf8="replace"
    )
    for name, value in fields:
        found.setdefault(name, []).append(value)
    return found


def _only(sent: dict[str, list[str]], name: str) -> str:
    """Return the value of a parameter; empty unless it is given once."""
    values = sent.get(name, [])
    return values[0] if len(values) == 1 else ""


def _check_type(query: Form) -> None:
    wanted = query.get("response_type", "")
    if wanted != "code":
        refusal = _OtherType if wanted else InvalidInput
        raise refusal("response_type must be code")


def _checked(query: Form, destination: Destination) -> tuple[str, str]:
    """Return the code challenge and the state."""
    if query.get("code_challenge_method") != "S256":
        raise InvalidInput("code_challenge_method must be S256")
    challenge, state = query.get("code_challenge", ""), query.get("state", "")
    if not _CHALLENGE.fullmatch(challenge):
        raise InvalidInput("code_challenge must be 43 characters of base64url")
    if destination.redirect_uri != OUT_OF_BAND and not _STATE.fullmatch(state):
        raise InvalidInput("state is at most 512 printable characters")
    return challenge, state


def _destination(console_url: str, client_id: str, redirect_uri: str) -> Destination:
    """Return where a client's code goes: to one address, for the command also to loopback.

    Raises:
        InvalidInput: the client or the address is another.

    """
    if client_id == CONSOLE:
        allowed, words = console_url + _SIGNED_IN, ""
    elif client_id == CLI:
        allowed, words = OUT_OF_BAND, ", or http://127.0.0.1:PORT/callback"
    else:
        raise InvalidInput(f"client_id must be {CLI} or {CONSOLE}")
    if redirect_uri != allowed and not (client_id == CLI and is_loopback_redirect(redirect_uri)):
        raise InvalidInput(f"redirect_uri must be {allowed}{words}")
    return Destination(client_id, redirect_uri)


def is_loopback_redirect(redirect_uri: str) -> bool:
    """Return True for a command's address on the browser's machine, any port (RFC 8252 §7.3)."""
    found = _LOOPBACK.fullmatch(redirect_uri)
    return found is not None and int(found[1]) < 1 << 16
