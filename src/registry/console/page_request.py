"""One request for a page: its session and parameters, and the responses to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.response import Redirect, Response, Template
from litestar.types import Receive, Send

from cloudcore.family import Family
from cloudcore.iam.principal import Founders
from cloudcore.resource_names import Crn
from cloudcore.serving.asgi import Receive as BodyReceive
from cloudcore.serving.dispatch import Application
from registry.console.addresses import parse_address
from registry.console.browser_request import Scope, cookies_of, host_of, raw_path_of
from registry.console.control_plane import ControlPlaneClient, Refused
from registry.console.rights import Rights, RightsQuestions, read_rights
from registry.console.sessions import COOKIE, Acting, ConsoleSession, CookieJar, Sessions, SignedOut

if TYPE_CHECKING:
    from registry.console.nouns.noun_pages import NounPages

PageResponse = Response[Any]
"""A page, a redirect or a file."""

_STATE = "page_request"


NOTICE_COOKIE: Final = "entrepot_console_notice"
NOTICE_SECONDS: Final = 60
"""Lifetime of the notice's cookie; a browser that loads a page later shows no notice."""


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A notice of a change, shown on the next page, and the form that undoes the change."""

    text: str
    undo: str = ""
    """Path to which the form that undoes the change is posted; empty if it cannot be undone."""
    fields: Mapping[str, str] = {}
    """Fields of that form, except the CSRF token."""
    undo_action: str = ""
    """The action that the role needs for that form."""
    undo_crn: str = ""
    """The resource on which the role needs `undo_action`; empty if it is not known."""


class Moved(Exception):
    """Raised for an old address of a page; `error_pages` redirects to the new one."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class ConsoleSettings(NamedTuple):
    """The settings of the install that the console uses."""

    auth_url: str
    """The base URL of the sign-in."""
    pull_host: str
    """The host of image references."""
    region: str
    families: tuple[Family[Any], ...]
    """The families of the install, whose resources, rights and events the pages show."""
    founders: Founders = "nobody"
    """Who may create accounts."""
    console_url: str = ""
    """The base URL of the console, if requests may come by other names; empty: `auth_url`."""
    registry_url: str = ""
    """The base URL that commands sign in to; empty: `auth_url`."""

    @property
    def own_url(self) -> str:
        """Return the base URL of the console."""
        return self.console_url or self.auth_url

    @property
    def url(self) -> str:
        """Return the base URL that commands sign in to."""
        return self.registry_url or self.auth_url


@dataclass(frozen=True)  # no slots: cached properties
class ConsoleApp:
    """The state that all requests to the console of an install share."""

    control: Application
    """The ASGI application of ``/v1``."""
    settings: ConsoleSettings
    sessions: Sessions
    jar: CookieJar
    nouns: Sequence[NounPages]
    """The nouns that have pages, in the order of the menu."""

    @cached_property
    def rights_questions(self) -> RightsQuestions:
        """Return the questions about the role's rights that pages ask ``/v1``."""
        return RightsQuestions(self.settings.families, self.settings.region)

    @cached_property
    def services(self) -> Sequence[NounPages]:
        """Return the nouns under the menu entry "Services"."""
        return [each for each in self.nouns if each.section == "services"]

    @cached_property
    def _paths(self) -> Mapping[tuple[str, str], str]:
        return {(each.service, each.type): each.path for each in self.nouns}

    def link_to(self, reference: Mapping[str, Any], account_id: str) -> str:
        """Return the path of a referenced resource's page; empty if it has none."""
        if "crn" not in reference:
            return ""
        crn = Crn.parse(reference["crn"])
        path = self._paths.get((crn.service, crn.type), "")
        return f"{path}/{reference['id']}" if path and crn.account == account_id else ""

    @cached_property
    def event_types(self) -> Mapping[str, tuple[str, Mapping[str, str]]]:
        """Map each family, as ``NAME.*``, to its title and its events with descriptions.

        The registry's events come first.
        """
        families = sorted(self.settings.families, key=lambda each: each.name != "registry")
        return {
            f"{each.name}.*": (each.title or each.name.title(), each.events_in_words)
            for each in families
            if each.events
        }


class PageRequest:
    """A browser's request for a page."""  # no dataclass: Litestar would copy it field by field

    def __init__(self, console: ConsoleApp, scope: Scope, receive: BodyReceive) -> None:
        self.console = console
        self.scope = scope
        self.receive = receive
        """Receives the body of an upload, which is not a form."""
        self.path = raw_path_of(scope)
        self.address = parse_address(self.path)
        """The parts of the path if it names a repository."""
        self.repository: Mapping[str, Any] | None = None
        """The repository that `address` names, once the request is admitted."""
        self._wanted_crns: list[str] = []
        self._rights: Rights | None = None
        self.cookies = cookies_of(scope)
        self.client = ControlPlaneClient(console.control, scope)
        """A client of ``/v1`` without credentials."""
        self.cookie_session = console.jar.open(COOKIE, self.cookies.get(COOKIE), ConsoleSession)
        """The session of the cookie, if any; `admission` checks that it is still valid."""
        self.parameters: Mapping[str, str] = {}
        """Parameters of the path. Like `query` and `form`, empty until the request is admitted."""
        self.query: Mapping[str, str] = {}
        self.form: Mapping[str, str] = {}
        """The fields of a POST."""
        self.set_cookies: dict[str, str] = {}
        """Values of ``Set-Cookie`` by the cookie's name, sent with any response, errors included.
        """
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
        """Return the session; raise `SignedOut` if there is none."""
        if self.cookie_session is None:
            raise SignedOut
        return self.cookie_session

    @property
    def acting(self) -> Acting:
        """Return the assumed role and its account."""
        acting = self.session.acting
        assert acting is not None, "the route admits only who acts in a role"
        return acting

    @property
    def now(self) -> int:
        """Return the time in microseconds since the epoch."""
        return self.console.sessions.now()

    @property
    def marker(self) -> str | None:
        """Return the marker of the requested page of a list; None for the first page."""
        return self.query.get("marker")

    @property
    def once(self) -> str:
        """Return the form's ``Idempotency-Key``, with which a form that is sent twice acts once."""
        return self.form.get("once", "")

    def text(self, field: str) -> str:
        """Return the text in a field of the form, without white space around the text."""
        return self.form.get(field, "").strip()

    def words(self, field: str) -> list[str]:
        """Return the words in a field of the form, which spaces or commas separate."""
        return self.form.get(field, "").replace(",", " ").split()

    def fill(self, path: str) -> str:
        """Fill the parameters of this request into a path such as ``/v1/roles/{role}``."""
        return path.replace(":str}", "}").format_map(self.parameters)

    @property
    def person(self) -> ControlPlaneClient:
        """Return a client of ``/v1`` that acts as the person."""
        return self.client.signed(self.session.person.value)

    @property
    def api(self) -> ControlPlaneClient:
        """Return a client of ``/v1`` that acts in the assumed role."""
        return self.client.signed(self.acting.token.value, forces_changes="own_rights" in self.form)

    def want_rights_on(self, *crns: str) -> None:
        """Make `rights` also read the rights on these resources."""
        self._wanted_crns += crns

    async def rights(self) -> Rights:
        """Return the rights of the role, read once per request; without a role, all are allowed."""
        if self._rights is None:
            session = self.cookie_session
            if session is None or session.acting is None:
                return Rights()
            if self.repository is not None:
                self.want_rights_on(self.repository["crn"])
            asked, account_id = self.console.rights_questions, session.acting.account_id
            rights = await read_rights(self.api, asked, account_id, self._wanted_crns)
            if self.repository is None and "repository" in self.parameters:
                await rights.read_here(self.api, self.parameters["repository"])
            self._rights = rights
        return self._rights

    async def require(self, action: str, crn: str = "") -> None:
        """Check that the role may do `action` on the resource `crn`, or the page's repository.

        Raise `Refused` if it may not.
        """
        if crn:
            self.want_rights_on(crn)
        if not self._may(await self.rights(), action, crn):
            raise self._refusal(_named(action))

    async def require_some(self, action: str) -> None:
        """Check that the role may do `action` on at least one resource.

        Raise `Refused` if there is none.
        """
        if not (await self.rights()).may_some(action):
            raise self._refusal(action)

    def _refusal(self, action: str) -> Refused:
        words = f"you may not do {action} here: no policy of your role allows it"
        return Refused(403, "ACCESS_DENIED", words, self.request_id)

    def show(self, template: str, status: int = 0, **values: object) -> PageResponse:
        """Return a page, with the notice of the change that redirected to the page, if any.

        Without `status`, use the status of the `refusal` among the values, or else 200.
        """
        status = status or getattr(values.get("refusal"), "status", 200)
        said = self._take_notice()
        if said is not None and said.undo_crn:
            self.want_rights_on(said.undo_crn)
        known = {
            "session": self.cookie_session,
            "path": self.path,
            "is_repository": self.address is not None,
            "query": self.query,
            "form": self.form,
            "said": said,
            "host": self.console.settings.pull_host,
            "own_url": self.console.settings.own_url,
            "services": self.console.services,
            "link_to": lambda to: self.console.link_to(to, self.acting.account_id),
            "now": self.now,
        }
        return _Page(self, template, known | values, status)

    async def rights_of_templates(self) -> dict[str, Callable[..., bool]]:
        """Return the functions that templates call to check rights."""
        rights = await self.rights()
        return {
            "may": partial(self._may, rights),
            "may_all": rights.may_all,
            "may_some": rights.may_some,
        }

    def _may(self, rights: Rights, action: str, crn: str = "") -> bool:
        """Return True if the role may do `action` on the resource `crn`.

        Without `crn`, the resource is the page's repository. An action without a family is the
        registry's.
        """
        if not crn and self.repository is not None:
            crn = self.repository["crn"]
        return (
            rights.may(_named(action), crn)
            if crn
            else rights.may_on_repository_page(_named(action))
        )

    def go(
        self,
        path: str,
        said: str = "",
        undo: str = "",
        fields: Mapping[str, str] | None = None,
        undo_action: str = "",
    ) -> PageResponse:
        """Redirect the browser to a page (303), which shows the notice `said` once.

        With `undo`, the notice has a button that posts `fields` to that path, for a role that may
        do `undo_action` on the page's repository.
        """
        if said:
            crn = self.repository["crn"] if undo and self.repository is not None else ""
            notice = Notice(said, undo, fields or {}, _named(undo_action) if crn else "", crn)
            self.set_cookies[NOTICE_COOKIE] = self.console.jar.seal(
                NOTICE_COOKIE, notice, NOTICE_SECONDS
            )
        return Redirect(path, status_code=303)

    def _take_notice(self) -> Notice | None:
        """Return the notice in the cookie, and delete the cookie; None if there is none."""
        cookie = self.cookies.get(NOTICE_COOKIE)
        if cookie is None:
            return None
        self.set_cookies[NOTICE_COOKIE] = self.console.jar.drop(NOTICE_COOKIE)
        return self.console.jar.open(NOTICE_COOKIE, cookie, Notice)

    def keep(self, session: ConsoleSession) -> None:
        """Set the session cookie."""
        self.set_cookies[COOKIE] = self.console.jar.seal(COOKIE, session)

    def forget(self) -> None:
        """Delete the session cookie."""
        self.set_cookies[COOKIE] = self.console.jar.drop(COOKIE)


class _Page(Template):
    """A template to render, after the role's rights have been read."""

    def __init__(
        self, page: PageRequest, template: str, context: dict[str, object], status: int
    ) -> None:
        super().__init__(template, context=context, status_code=status)
        self._page = page

    def to_asgi_response(  # type: ignore[override]
        self,
        app: None,
        request: Request[Any, Any, Any],
        **options: Any,  # noqa: ANN401 - the framework's
    ) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """Return an ASGI application that sends the page."""

        async def send_page(scope: Scope, receive: Receive, send: Send) -> None:
            self.context.update(await self._page.rights_of_templates())
            rendered = super(_Page, self).to_asgi_response(app, request, **options)
            await rendered(scope, receive, send)

        return send_page


def _named(action: str) -> str:
    return action if ":" in action else f"registry:{action}"


InjectedPage = NamedDependency[PageRequest]
"""The parameter ``page`` of a handler."""


def page_of(scope: Scope) -> PageRequest:
    """Return the page request of an ASGI scope."""
    found: PageRequest = scope["state"][_STATE]
    return found
