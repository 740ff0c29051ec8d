"""``/v2/token``: issue a bearer for a login credential, or for public access without one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from cloudcore.errors import InvalidInput, MethodNotAllowed, Unauthenticated
from cloudcore.serving.asgi import BodyTooLarge, Receive, Scope, header_values, read_body
from cloudcore.serving.bodies.budget import BODIES
from cloudcore.serving.clients import decode_basic
from cloudcore.wire import rfc3339
from registry.distribution.request import Query
from registry.distribution.response import Response, json_headers, json_response
from registry.distribution.routing import Mirrors
from registry.distribution.token_access import TokenAccess
from registry.errors import NameInvalid, TokenRequired
from registry.oci.reference import Name, parse_name
from registry.services.access.bearers import BEARER_SECONDS
from registry.services.access.decisions import PERMISSIONS, PolicyTooCostly
from registry.services.access.logins import USERNAME, ClientCredential, wrong_login
from registry.services.access.tokens import CATALOG, IssuedBearer

MAX_SCOPES: Final = 30
_MAX_FORM_BYTES: Final = 64 * 1024
_FORM: Final = re.compile(rb"application/x-www-form-urlencoded[ \t]*(?:;.*)?", re.IGNORECASE)
_TYPE: Final = re.compile(r"([a-z0-9]+)(?:\([a-z0-9]+\))?")
_NO_STORE: Final = (b"cache-control", b"no-store")

Requested = dict[Name, tuple[str, ...]]


class TokenEndpoint:
    """Responds to GET by the distribution token specification, and to POST by OAuth 2.0."""

    def __init__(self, access: TokenAccess, mirrors: Mirrors | None = None) -> None:
        self._access = access
        self._mirrors = mirrors or Mirrors()
        self._tokens = access.tokens

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """Answer a request.

        Raises:
            TokenRequired: a GET has a wrong or expired credential.
            InvalidInput: a GET has a malformed query.
            PolicyTooCostly: in a GET, the policies take too many steps.
            TooManyAttempts: too many failures with access keys.
            MethodNotAllowed: the method is not GET, HEAD or POST.

        """
        match scope["method"]:
            case "GET" | "HEAD":
                return await self._get(scope)
            case "POST":
                return await self._post(scope, receive)
            case _:
                allow = "GET, HEAD, POST"
                raise MethodNotAllowed(f"this endpoint answers {allow}", allow=allow)

    async def _get(self, scope: Scope) -> Response:
        local = partial(self._mirrors.local, self._mirrors.key(scope))
        requested = parse_scopes(Query(scope["query_string"], is_form=True).all("scope"), local)
        try:
            return await self._issue(scope, _basic_credential(scope), requested)
        except Unauthenticated as error:
            challenge = self._access.challenges.basic(scope)
            raise TokenRequired(error.message, challenge) from None

    async def _post(self, scope: Scope, receive: Receive) -> Response:
        try:
            form = await _form(scope, receive)
            grant = form.one("grant_type")
            if grant is None:
                return _refusal(400, "invalid_request", "the form has no grant_type")
            if grant not in ("password", "refresh_token"):
                return _refusal(400, "unsupported_grant_type", "send password or refresh_token")
            # A refresh token is the password of a login, which has one user name.
            username = form.one("username") if grant == "password" else USERNAME
            password = form.one("password" if grant == "password" else "refresh_token")
            if password is None or username is None:
                return _refusal(400, "invalid_request", f"the {grant} grant lacks a parameter")
            local = partial(self._mirrors.local, self._mirrors.key(scope))
            requested = parse_scopes(form.all("scope"), local)
        except BodyTooLarge:
            return _refusal(413, "invalid_request", f"a form has at most {_MAX_FORM_BYTES} bytes")
        except InvalidInput as error:
            return _refusal(400, "invalid_request", error.message)
        try:
            return await self._issue(scope, ClientCredential(username, password), requested)
        except Unauthenticated as error:
            return _refusal(401, "invalid_grant", error.message)
        except PolicyTooCostly as error:
            return _refusal(400, "invalid_scope", error.message)

    async def _issue(
        self, scope: Scope, credential: ClientCredential | None, requested: Requested
    ) -> Response:
        source_ip = self._access.source_ip(scope)
        note = partial(self._access.note_refused_login, scope)
        issued = await self._tokens.exchange(credential, requested, source_ip, note)
        state = scope.setdefault("state", {})
        state["principal"], state["source"] = issued.subject, issued.source  # for the access log
        return json_response(_document(issued), _NO_STORE)


def parse_scopes(
    values: Sequence[str], local: Callable[[str], str] = lambda text: text
) -> Requested:
    """Return the requested actions by name; ignore unknown types and actions, and malformed names.

    `local` maps a client's name of a repository to the local one.

    An entry is ``type[(class)]:name:action[,action]``. Some tools put several in one value.

    Raise `InvalidInput` if there are more than `MAX_SCOPES` entries.
    """
    entries = [entry for value in values for entry in value.split()]
    if len(entries) > MAX_SCOPES:
        raise InvalidInput(f"one token is for at most {MAX_SCOPES} scopes")
    requested: dict[Name, set[str]] = {}
    for entry in entries:
        kind, _, rest = entry.partition(":")
        text, _, actions = rest.rpartition(":")
        name = _name(kind, text, local)
        if name is not None:
            requested.setdefault(name, set()).update(actions.split(","))
    found = {name: _actions(name, actions) for name, actions in requested.items()}
    return {name: actions for name, actions in found.items() if actions}


def _name(kind: str, text: str, local: Callable[[str], str]) -> Name | None:
    found = _TYPE.fullmatch(kind)
    if found is None or found[1] not in ("repository", "registry"):
        return None
    if found[1] == "registry":
        return CATALOG if text == "catalog" else None
    try:
        return parse_name(local(text))
    except NameInvalid:
        return None


def _actions(name: Name, requested: set[str]) -> tuple[str, ...]:
    """Return the known actions in a fixed order; ``*`` on a repository means all of them."""
    if name == CATALOG:
        return ("*",) if "*" in requested else ()
    return tuple(action for action in PERMISSIONS if requested & {action, "*"})


def _basic_credential(scope: Scope) -> ClientCredential | None:
    """Return user name and password of a Basic credential, or None without one (RFC 7617).

    Raise Unauthenticated if the header is malformed, or has another scheme.
    """
    given = header_values(scope, b"authorization")
    if not given:
        return None
    pair = decode_basic(given[0])
    if pair is None or len(given) > 1:
        raise wrong_login()
    return ClientCredential(*(part.decode("utf-8", "replace") for part in pair))


async def _form(scope: Scope, receive: Receive) -> Query:
    """Return the fields of a form; raise InvalidInput if malformed, BodyTooLarge if too long."""
    types = header_values(scope, b"content-type")
    if len(types) != 1 or not _FORM.fullmatch(types[0]):
        raise InvalidInput("send application/x-www-form-urlencoded")
    with BODIES.hold() as hold:
        body = await read_body(hold.metered(receive), _MAX_FORM_BYTES)
    if body is None:
        raise InvalidInput("the form ended early")
    return Query(body, is_form=True)


def _document(issued: IssuedBearer) -> bytes:
    granted = [
        f"{'registry:catalog' if name == CATALOG else f'repository:{name}'}:"
        f"{','.join(entry.granted)}"
        for name, entry in issued.access.items()
        if entry.granted
    ]
    return msgspec.json.encode(
        {
            "token": issued.token,
            "access_token": issued.token,
            "expires_in": BEARER_SECONDS,
            "issued_at": rfc3339(issued.issued_at),
            "scope": " ".join(granted),
        }
    )


def _refusal(status: int, error: str, description: str) -> Response:
    """Return an OAuth error response (RFC 6749 §5.2)."""
    body = msgspec.json.encode({"error": error, "error_description": description})
    return Response(status, [*json_headers(body), _NO_STORE], body)
