"""One request for a page: its session and parameters, and the answers to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from litestar.di import NamedDependency
from litestar.response import Redirect, Response, Template

from cloudcore.serving.dispatch import Application
from registry.console.addresses import parse_address
from registry.console.browser_request import Scope, cookies_of, host_of, raw_path_of
from registry.console.control_plane import ControlPlaneClient
from registry.console.cookies import CookieJar
from registry.console.notices import NOTICE_COOKIE, NOTICE_SECONDS, Notice
from registry.console.sessions import COOKIE, ConsoleSession, Sessions, SignedOut

PageResponse = Response[Any]
"""A page, a redirect or a file."""

_STATE = "page_request"


class Moved(Exception):
    """Raised when a page has another address by now."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class ConsoleSettings(NamedTuple):
    """The settings of the install that pages show."""

    auth_url: str
    """The base URL of the install, where people sign in."""
    pull_host: str
    """The host of image references."""
    region: str


@dataclass(frozen=True, slots=True)
class ConsoleApp:
    """What all requests to the console of one install share."""

    control: Application
    """``/v1``, an ASGI application."""
    settings: ConsoleSettings
    sessions: Sessions
    jar: CookieJar


class PageRequest:
    """One request."""  # no dataclass: Litestar would copy it field by field

    def __init__(self, console: ConsoleApp, scope: Scope) -> None:
        self.console = console
        self.scope = scope
        self.path = raw_path_of(scope)
        self.address = parse_address(self.path)
        """The parts of the path if it names a repository."""
        self.repository: Mapping[str, Any] | None = None
        """The repository of that name, once the request is admitted."""
        self.allowed: frozenset[str] | None = None
        """The actions that the role may do on it; None if that is not known."""
        self.cookies = cookies_of(scope)
        self.client = ControlPlaneClient(console.control, scope)
        """``/v1`` without credentials."""
        self.known_session = console.jar.open(COOKIE, self.cookies.get(COOKIE), ConsoleSession)
        """The session of the cookie, if any; `admission` checks that it is still valid."""
        self.parameters: Mapping[str, str] = {}
        """Parameters of the path. Like query and form, empty until the request is admitted."""
        self.query: Mapping[str, str] = {}
        self.form: Mapping[str, str] = {}
        """The fields of a POST."""
        self.set_cookies: dict[str, str] = {}
        """Values of ``Set-Cookie`` by the cookie's name, sent with any answer, errors included."""
        scope["state"][_STATE] = self

    @property
    def request_id(self) -> str:
        """Return the id of the request."""
        return str(self.scope["state"]["request_id"])

    @property
    def host(self) -> str:
        """Return the host and port under which the browser sent the request."""
        return host_of(self.scope)

    @property
    def session(self) -> ConsoleSession:
        """Return the session.

        Raises:
            SignedOut: there is none.

        """
        if self.known_session is None:
            raise SignedOut
        return self.known_session

    @property
    def person(self) -> ControlPlaneClient:
        """Return ``/v1`` for the person."""
        return self.client.signed(self.session.person.value)

    @property
    def api(self) -> ControlPlaneClient:
        """Return ``/v1`` for the role that the person has assumed."""
        acting = self.session.acting
        assert acting is not None, "the route admits only who acts in a role"
        return self.client.signed(acting.token.value)

    def show(self, template: str, status: int = 200, **values: object) -> PageResponse:
        """Return a page, with the notice of the change that led to it, if any."""
        known = {
            "session": self.known_session,
            "path": self.path,
            "is_repository": self.address is not None,
            "may": self._may,
            "query": self.query,
            "form": self.form,
            "said": self._take_notice(),
            "host": self.console.settings.pull_host,
            "now": self.console.sessions.now(),
        }
        return Template(template, context=known | values, status_code=status)

    def _may(self, action: str) -> bool:
        """Return False if the role may not do `action` of the registry on the page's repository."""
        return self.allowed is None or f"registry:{action}" in self.allowed

    def go(
        self, path: str, said: str = "", undo: str = "", fields: Mapping[str, str] | None = None
    ) -> PageResponse:
        """Redirect the browser to a page (303), which shows the notice `said` once.

        With `undo`, the notice has a button that posts `fields` to this path.
        """
        if said:
            notice = Notice(said, undo, fields or {})
            self.set_cookies[NOTICE_COOKIE] = self.console.jar.seal(
                NOTICE_COOKIE, notice, NOTICE_SECONDS
            )
        return Redirect(path, status_code=303)

    def _take_notice(self) -> Notice | None:
        """Return the notice of the cookie, which the browser then drops, or None."""
        cookie = self.cookies.get(NOTICE_COOKIE)
        if cookie is None:
            return None
        self.set_cookies[NOTICE_COOKIE] = self.console.jar.drop(NOTICE_COOKIE)
        return self.console.jar.open(NOTICE_COOKIE, cookie, Notice)

    def keep(self, session: ConsoleSession) -> None:
        """Set the cookie of a session."""
        self.set_cookies[COOKIE] = self.console.jar.seal(COOKIE, session)

    def forget(self) -> None:
        """Delete the cookie of the session."""
        self.set_cookies[COOKIE] = self.console.jar.drop(COOKIE)


InjectedPage = NamedDependency[PageRequest]
"""The parameter ``page`` of a handler."""


def page_of(scope: Scope) -> PageRequest:
    """Return the page request that a scope belongs to."""
    found: PageRequest = scope["state"][_STATE]
    return found
