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
from cloudcore.resource_names import parse_uuid
from registry.console.addresses import HOME, path_of_name
from registry.console.browser_request import form_of, header_of, query_of
from registry.console.control_plane import unless_refused
from registry.console.page_request import Moved, PageRequest, page_of
from registry.console.sessions import ConsoleSession
from registry.oci.reference import is_tag

_DIGEST: Final = re.compile(r"[a-z0-9]{1,32}:[0-9a-f]{1,128}")
_PIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_BUCKET: Final = re.compile(r"[a-z0-9.-]{3,63}")
_ASSET: Final = re.compile(r"[a-z]+[.][a-z]+")
_WHEEL: Final = re.compile(r"[a-z0-9._+-]{1,100}[.]whl")
_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "bucket": _BUCKET.fullmatch,
    "digest": _DIGEST.fullmatch,
    "tag": is_tag,
    "pin": _PIN.fullmatch,
    "asset": _ASSET.fullmatch,
    "wheel": _WHEEL.fullmatch,
}
"""Maps path parameters to functions that return a true value if well-formed; others are UUIDs."""


class Requires(Enum):
    """The kind of session that a route requires: ``requires`` in its ``opt``, `ROLE` by default."""

    NOTHING = "anyone"
    PERSON = "who has signed in"
    ROLE = "who acts in a role"
    PERSON_IN_ROLE = "who acts in a role, on a page that also calls as the person"


async def admit(request: Request[Any, Any, Any]) -> None:
    """Parse and check a request; renew its session if a token is about to expire.

    Raises:
        NotFound: a path parameter is malformed, or the method is not supported.
        InvalidInput: the query or the form is malformed.
        AccessDenied: the form does not belong to this session.
        Moved: the page has another address.
        SignedOut, NoRole: the route requires a signed-in person, or a role.
        RoleRefused: the session's role no longer admits the person.
        Refused: ``/v1`` has refused to renew the session.

    """
    page, handler = page_of(request.scope), request.route_handler
    is_named = page.address is not None
    if "OPTIONS" in handler.http_methods:  # the framework would answer it itself
        raise no_such_page()
    parameters: dict[str, str] = dict(request.path_params)
    if is_named:
        del parameters["repository"]
    check_parameters(parameters)
    page.parameters = parameters
    page.query = query_of(request.scope)
    if request.method == "POST":
        page.form = await form_of(request)
    elif request.method == "PUT":  # the body of a script's request is a file
        page.form = {"csrf": header_of(request.scope, b"x-csrf") or ""}
    required = handler.opt.get("requires", Requires.ROLE)
    if required is Requires.NOTHING:
        return
    session = page.cookie_session
    if request.method in ("POST", "PUT") and session is not None:
        _check_own_form(page, session)
    page.cookie_session = await _renewed(page, required)
    if page.cookie_session != session:
        page.keep(page.cookie_session)
    if is_named:
        page.repository = await find_repository(page)
        page.parameters = {**parameters, "repository": page.repository["id"]}
    elif "repository" in parameters and request.method == "GET":
        await _leave_id(page)


async def _renewed(page: PageRequest, required: Requires) -> ConsoleSession:
    """Renew the tokens that the page needs; return the session with them."""
    sessions, session = page.console.sessions, page.cookie_session
    if required is Requires.ROLE:
        return await sessions.live(page.client, session)
    person = await sessions.with_person_token(page.client, session)
    return person if required is Requires.PERSON else await sessions.live(page.client, person)


async def find_repository(page: PageRequest) -> dict[str, Any]:
    """Return the repository that the address names, as read from ``/v1``.

    Raise `NotFound` if the account of the session has no repository of this name.
    """
    address, acting = page.address, page.acting
    assert address is not None
    if address.name.handle != acting.account:
        raise NotFound(
            f"this is a repository of the account {address.name.handle}, and you act in "
            f"{acting.account}; choose a role of the other account"
        )
    named = await page.api.get("/v1/repositories", name=address.name.repository)
    for found in named["repositories"]:
        return dict(found)
    raise NotFound(f"there is no repository {address.name.repository}")


async def _leave_id(page: PageRequest) -> None:
    """Raise `Moved` if the address has the id of one of the account's own repositories."""
    path = f"/v1/repositories/{page.parameters['repository']}"
    found = await unless_refused(page.api.get(path))
    if found is None:
        return
    there = path_of_name(page.acting.account, found["repository"]["name"])
    match page.parameters:
        case {"digest": digest}:
            base, before = there.image(digest), f"/images/{digest}"
        case {"tag": tag}:
            base, before = there.tag(tag), f"/tags/{tag}"
        case _:
            base, before = there.base, ""
    rest = page.path.removeprefix(f"{HOME}/{page.parameters['repository']}{before}")
    raise Moved(f"{base}/-{rest}" if rest else base)


def check_parameters(parameters: Mapping[str, str]) -> None:
    """Check the syntax of each path parameter; raise `NotFound` if one is malformed."""
    for name, value in parameters.items():
        if not _CHECKS.get(name, parse_uuid)(value):
            raise no_such_page()


def no_such_page() -> NotFound:
    """Return the error for an unknown address or method."""
    return NotFound("there is no such page")


def _check_own_form(page: PageRequest, session: ConsoleSession) -> None:
    """Check that a form was sent by a page of this session.

    Raise `AccessDenied` if it comes from another site, or lacks the session's CSRF token.
    """
    origin = header_of(page.scope, b"origin")
    own = {page.host, urlsplit(page.console.settings.own_url).netloc}
    if origin is not None and origin.partition("://")[2] not in own:  # RFC 6454 §6.2
        raise AccessDenied("the form came from another site")
    if not hmac.compare_digest(page.form.get("csrf", "").encode(), session.csrf.encode()):
        raise AccessDenied("the form is of an earlier sign-in; go back, reload, and send it again")
