"""Sign in and out, and choose a role; the console is an OAuth client with PKCE."""

from __future__ import annotations

import hmac
import re
import secrets
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec
from litestar import get, post

from cloudcore.base64url import code_challenge
from cloudcore.identity.oauth.forms import CONSOLE
from registry.console.addresses import (
    HOME,
    ROLES,
    SIGN_IN,
    SIGNED_IN,
    SIGNED_OUT,
    page_of_reference,
)
from registry.console.admission import Requires
from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.sessions import LIFETIME, ConsoleSession, NoRole, list_roles

_COOKIE: Final = "entrepot_console_sign_in"
_OWN: Final = re.compile(r"/console(?:/[A-Za-z0-9/_.:@-]*)?(?:\?[A-Za-z0-9=&%+_.:~-]*)?")
_MAX_PATH: Final = 1000
"""Maximum characters of the address to return to."""


class _Begun(msgspec.Struct, frozen=True, array_like=True):
    """A sign-in under way: the content of its cookie."""

    state: str
    verifier: str
    to: str


def own_page(path: str) -> str:
    """Return `path` if a sign-in may return to it: a page of the console; else `HOME`."""
    is_own = len(path) <= _MAX_PATH and _OWN.fullmatch(path) and "//" not in path
    if not is_own or ".." in path or path.startswith((SIGN_IN, SIGNED_OUT, SIGNED_IN)):
        return HOME
    return path


@get("/", opt={"requires": Requires.NOTHING})
async def show_console(page: InjectedPage) -> PageResponse:
    """Redirect from the root of a host to the console, or from an image reference to its page."""
    there = page_of_reference(page.path) or "/console"
    return page.go(f"{page.console.settings.console_url}{there}")


@get("/console", opt={"requires": Requires.NOTHING})
async def show_home(page: InjectedPage) -> PageResponse:
    """Redirect to the first page."""
    return page.go(HOME)


@get(SIGN_IN, opt={"requires": Requires.NOTHING})
async def begin(page: InjectedPage) -> PageResponse:
    """Redirect the browser to the sign-in page (RFC 7636).

    The sign-in returns to the console's host, and its cookie belongs to one host. So a browser that
    used another host name is redirected to the console's host first, but only once: a proxy may
    hide which name the browser used.
    """
    auth_url, own_url = page.console.settings.auth_url, page.console.settings.own_url
    to = own_page(page.query.get("to", HOME))
    if page.host != urlsplit(own_url).netloc and "moved" not in page.query:
        return page.go(f"{own_url}{SIGN_IN}?{urlencode({'to': to, 'moved': '1'})}")
    begun = _Begun(secrets.token_urlsafe(32), secrets.token_urlsafe(48), to)
    asked = {
        "response_type": "code",
        "client_id": CONSOLE,
        "redirect_uri": own_url + SIGNED_IN,
        "code_challenge": code_challenge(begun.verifier),
        "code_challenge_method": "S256",
        "state": begun.state,
    }
    page.set_cookies[_COOKIE] = page.console.jar.seal(_COOKIE, begun)
    return page.go(f"{auth_url}/v1/oauth/authorize?{urlencode(asked)}")


@get(SIGNED_IN, opt={"requires": Requires.NOTHING})
async def finish(page: InjectedPage) -> PageResponse:
    """Exchange the code for tokens, and redirect to the page that was requested first."""
    jar = page.console.jar
    begun = jar.open(_COOKIE, page.cookies.get(_COOKIE), _Begun)
    state, code = page.query.get("state", ""), page.query.get("code", "")
    if begun is None or not hmac.compare_digest(begun.state.encode(), state.encode()):
        return _failed(page, "This browser did not begin that sign-in, or began another since.")
    form = {
        "grant_type": "authorization_code",
        "client_id": CONSOLE,
        "redirect_uri": page.console.settings.own_url + SIGNED_IN,
        "code": code,
        "code_verifier": begun.verifier,
    }
    try:
        tokens = await page.client.post_form("/v1/oauth/token", form)
    except Refused as error:
        if error.status >= 500:
            raise
        return _failed(page, "The sign-in took too long, or was used already.")
    page.cookie_session = await _session(page, tokens)
    roles = await list_roles(page.person)
    page.set_cookies[_COOKIE] = jar.drop(_COOKIE)
    return await _choose(page, roles, begun.to)


async def _session(page: PageRequest, tokens: dict[str, str]) -> ConsoleSession:
    sessions = page.console.sessions
    person = sessions.token(dict(tokens))
    myself = await page.client.signed(person.value).get("/v1/users/me")
    return ConsoleSession(
        user_id=myself["user"]["id"],
        email=myself["user"]["email"],
        csrf=secrets.token_urlsafe(32),
        ends_at=sessions.now() + LIFETIME,
        person=person,
        refresh_token=tokens["refresh_token"],
    )


async def _choose(page: PageRequest, roles: list[dict[str, object]], to: str) -> PageResponse:
    """Assume the person's only role, or redirect to a choice.

    The session is kept even if the role refuses the person.
    """
    page.keep(page.session)
    if len(roles) != 1:
        return page.go(f"{ROLES}?{urlencode({'to': to})}")
    page.keep(await page.console.sessions.act(page.client, page.session, str(roles[0]["id"])))
    return page.go(to)


def _failed(page: PageRequest, words: str) -> PageResponse:
    return page.show("signed_out.html", 400, title="Not signed in", words=words)


@get(ROLES, opt={"requires": Requires.PERSON})
async def show_roles(page: InjectedPage) -> PageResponse:
    """Show the roles that the person may assume."""
    to = own_page(page.query.get("to", HOME))
    return page.show("roles.html", roles=await list_roles(page.person), to=to)


@post(ROLES, opt={"requires": Requires.PERSON})
async def choose_role(page: InjectedPage) -> PageResponse:
    """Assume another role."""
    role_id = page.form.get("role", "")
    try:
        page.keep(await page.console.sessions.act(page.client, page.session, role_id))
    except NoRole:
        return page.go(ROLES)
    return page.go(own_page(page.form.get("to", HOME)))


@post("/console/sign-out", opt={"requires": Requires.PERSON})
async def sign_out(page: InjectedPage) -> PageResponse:
    """Revoke the session's tokens; delete the cookie even if that fails."""
    page.forget()
    try:
        form = {"token": page.session.refresh_token, "client_id": CONSOLE}
        await page.client.post_form("/v1/oauth/revoke", form)
    except Refused as error:
        return page.show(
            "error.html", error.status, session=None, error=error, by_role=False, kept=""
        )
    return page.go(SIGNED_OUT)


@get(SIGNED_OUT, opt={"requires": Requires.NOTHING})
async def show_signed_out(page: InjectedPage) -> PageResponse:
    """Show that the person is signed out, with a link to sign in again."""
    words = "Nothing of it is left in this browser."
    return page.show("signed_out.html", session=None, title="Signed out", words=words)
