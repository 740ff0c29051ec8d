"""Signing in and out: the console is an OAuth client with PKCE, and a person chooses a role."""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from cloudcore.identity.oauth_forms import CONSOLE
from registry.console.control_plane import Refused
from registry.console.messages import Response, redirect
from registry.console.routing import Needs, Parameters, Route
from registry.console.sessions import LIFETIME, NoRole, Session, list_roles
from registry.console.visit import Visit

HOME: Final = "/console/repositories"
SIGN_IN: Final = "/console/sign-in"
SIGNED_OUT: Final = "/console/signed-out"
ROLES: Final = "/console/roles"
_SIGNED_IN: Final = "/console/signed-in"
_COOKIE: Final = "entrepot_console_sign_in"
_OURS: Final = re.compile(r"/console(?:/[A-Za-z0-9/_.:-]*)?(?:\?[A-Za-z0-9=&%+_.:~-]*)?")


class _Begun(msgspec.Struct, frozen=True, array_like=True):
    """A sign-in under way, as the browser's other cookie holds it."""

    state: str
    verifier: str
    to: str


def page_of_ours(path: str) -> str:
    """Return where to go after the sign-in: a page of the console, whatever was asked for."""
    is_ours = len(path) <= 1000 and _OURS.fullmatch(path) and "//" not in path and ".." not in path
    return path if is_ours and not path.startswith((SIGN_IN, SIGNED_OUT, _SIGNED_IN)) else HOME


async def begin(visit: Visit, _: Parameters) -> Response:
    """Send the browser to the sign-in page (RFC 7636), from the host that this leads back to.

    The cookie of a sign-in is of one host. Who came by another name of it is sent there first;
    once only, as a proxy may hide by which name the browser came.
    """
    query = visit.request.query
    to = page_of_ours(query.get("to", HOME))
    if visit.request.host != urlsplit(visit.house.auth_url).netloc and "moved" not in query:
        there = urlencode({"to": to, "moved": "1"})
        return redirect(f"{visit.house.auth_url}{SIGN_IN}?{there}")
    begun = _Begun(secrets.token_urlsafe(32), secrets.token_urlsafe(48), to)
    digest = sha256(begun.verifier.encode()).digest()
    asked = {
        "response_type": "code",
        "client_id": CONSOLE,
        "redirect_uri": visit.house.auth_url + _SIGNED_IN,
        "code_challenge": urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        "state": begun.state,
    }
    answer = redirect(f"{visit.house.auth_url}/v1/oauth/authorize?{urlencode(asked)}")
    answer.cookies[_COOKIE] = visit.house.jar.seal(_COOKIE, begun)
    return answer


async def finish(visit: Visit, _: Parameters) -> Response:
    """Change the code for tokens, and go where the browser wanted to."""
    request, jar = visit.request, visit.house.jar
    begun = jar.open(_COOKIE, request.cookies.get(_COOKIE), _Begun)
    state, code = request.query.get("state", ""), request.query.get("code", "")
    if begun is None or not hmac.compare_digest(begun.state.encode(), state.encode()):
        return _failed(visit, "This browser did not begin that sign-in, or began another since.")
    form = {
        "grant_type": "authorization_code",
        "client_id": CONSOLE,
        "redirect_uri": visit.house.auth_url + _SIGNED_IN,
        "code": code,
        "code_verifier": begun.verifier,
    }
    try:
        tokens = await visit.client.post_form("/v1/oauth/token", form)
    except Refused as error:
        if error.status >= 500:
            raise
        return _failed(visit, "The sign-in took too long, or was used already.")
    session = await _session(visit, tokens)
    visited = Visit(visit.house, request, visit.client, session)
    answer = await _choose(visited, await list_roles(visited.person), begun.to)
    answer.cookies[_COOKIE] = jar.drop(_COOKIE)
    return answer


async def _session(visit: Visit, tokens: dict[str, str]) -> Session:
    person = visit.house.sessions.token(dict(tokens))
    myself = await visit.client.signed(person.value).get("/v1/users/me")
    return Session(
        user_id=myself["user"]["id"],
        email=myself["user"]["email"],
        csrf=secrets.token_urlsafe(32),
        ends_at=visit.house.sessions.now() + LIFETIME,
        person=person,
        refresh_token=tokens["refresh_token"],
    )


async def _choose(visit: Visit, roles: list[dict[str, object]], to: str) -> Response:
    """Act in the only role there is, or let the person choose."""
    if len(roles) != 1:
        return visit.keep(redirect(f"{ROLES}?{urlencode({'to': to})}"), visit.session)
    session = await visit.house.sessions.act(visit.client, visit.session, str(roles[0]["id"]))
    return visit.keep(redirect(to), session)


def _failed(visit: Visit, words: str) -> Response:
    return visit.page("signed_out.html", 400, title="Not signed in", words=words)


async def show_roles(visit: Visit, _: Parameters) -> Response:
    """Show the roles that the person can act in."""
    to = page_of_ours(visit.request.query.get("to", HOME))
    return visit.page("roles.html", roles=await list_roles(visit.person), to=to)


async def choose_role(visit: Visit, _: Parameters) -> Response:
    """Act in another role from now on."""
    form = visit.request.form
    try:
        session = await visit.house.sessions.act(visit.client, visit.session, form.get("role", ""))
    except NoRole:
        return redirect(ROLES)
    return visit.keep(redirect(page_of_ours(form.get("to", HOME))), session)


async def sign_out(visit: Visit, _: Parameters) -> Response:
    """End the session everywhere, and forget it here whatever becomes of that."""
    try:
        form = {"token": visit.session.refresh_token, "client_id": CONSOLE}
        await visit.client.post_form("/v1/oauth/revoke", form)
    except Refused as error:
        return visit.forget(
            visit.page("error.html", error.status, session=None, error=error, by_role=False)
        )
    return visit.forget(redirect(SIGNED_OUT))


async def show_signed_out(visit: Visit, _: Parameters) -> Response:
    """Show the page that leads back in."""
    words = "Nothing of it is left in this browser."
    return visit.page("signed_out.html", session=None, title="Signed out", words=words)


async def show_console(visit: Visit, _: Parameters) -> Response:
    """Go from the root of the host to the console."""
    return visit.go("/console")


async def show_home(visit: Visit, _: Parameters) -> Response:
    """Go to the first page."""
    return visit.go(HOME)


ROUTES: Final = [
    Route("GET", "/", show_console, Needs.NOTHING),
    Route("GET", "/console", show_home, Needs.NOTHING),
    Route("GET", "/console/", show_home, Needs.NOTHING),
    Route("GET", SIGN_IN, begin, Needs.NOTHING),
    Route("GET", _SIGNED_IN, finish, Needs.NOTHING),
    Route("GET", SIGNED_OUT, show_signed_out, Needs.NOTHING),
    Route("POST", "/console/sign-out", sign_out, Needs.PERSON),
    Route("GET", ROLES, show_roles, Needs.PERSON),
    Route("POST", ROLES, choose_role, Needs.PERSON),
]
