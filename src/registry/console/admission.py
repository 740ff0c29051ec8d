"""Admit requests to pages: check path, form and session."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final
from urllib.parse import urlsplit

from litestar import Request

from cloudcore.errors import AccessDenied, NotFound
from cloudcore.uuids import parse_uuid
from registry.console.browser_request import form_of, header_of, query_of
from registry.console.page_request import PageRequest, page_of
from registry.console.sessions import ConsoleSession
from registry.oci.reference import is_tag

_DIGEST: Final = re.compile(r"[a-z0-9]+:[0-9a-f]+")
_PIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ASSET: Final = re.compile(r"[a-z]+[.][a-z]+")
_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "repository": parse_uuid,
    "rule": parse_uuid,
    "digest": _DIGEST.fullmatch,
    "tag": is_tag,
    "pin": _PIN.fullmatch,
    "asset": _ASSET.fullmatch,
}
"""Functions that tell whether a path parameter is well-formed, by its name."""


class Needs(Enum):
    """The session that a route requires: ``needs`` in its ``opt``, `ROLE` by default."""

    NOTHING = "anyone"
    PERSON = "who has signed in"
    ROLE = "who acts in a role"


async def admit(request: Request[Any, Any, Any]) -> None:
    """Parse and check a request; renew its session if a token is about to expire.

    Raises:
        NotFound: a path parameter is malformed, or the method is not supported.
        InvalidInput: the query or the form is malformed.
        AccessDenied: the form does not belong to this session.
        SignedOut, NoRole: the route requires a person, or a role.
        RoleRefused: the session's role no longer admits the person.
        Refused: ``/v1`` has refused to renew the session.

    """
    page, handler = page_of(request.scope), request.route_handler
    if "OPTIONS" in handler.http_methods:  # the framework's own answer
        raise no_such_page()
    check_parameters(request.path_params)
    page.parameters = request.path_params
    page.query = query_of(request.scope)
    if request.method == "POST":
        page.form = await form_of(request)
    needs = handler.opt.get("needs", Needs.ROLE)
    if needs is Needs.NOTHING:
        return
    session = page.known_session
    if request.method == "POST" and session is not None:
        _check_own_form(page, session)
    sessions = page.console.sessions
    renew = sessions.live_person if needs is Needs.PERSON else sessions.live
    page.known_session = await renew(page.client, session)
    if page.known_session != session:
        page.keep(page.known_session)


def check_parameters(parameters: Mapping[str, str]) -> None:
    """Check the syntax of each path parameter.

    Raises:
        NotFound: one is malformed.

    """
    for name, value in parameters.items():
        if not _CHECKS[name](value):
            raise no_such_page()


def no_such_page() -> NotFound:
    """Return the error for an unknown address or method."""
    return NotFound("there is no such page")


def _check_own_form(page: PageRequest, session: ConsoleSession) -> None:
    """Check that a form was sent by a page of this session.

    Raises:
        AccessDenied: it comes from another site, or lacks the session's CSRF token.

    """
    origin = header_of(page.scope, b"origin")
    own = {page.host, urlsplit(page.console.settings.auth_url).netloc}
    if origin is not None and origin.partition("://")[2] not in own:  # RFC 6454 §6.2
        raise AccessDenied("the form came from another site")
    if not hmac.compare_digest(page.form.get("csrf", "").encode(), session.csrf.encode()):
        raise AccessDenied("the form is of an earlier sign-in; go back, reload, and send it again")
