"""The console as an application: who may come, what every answer carries, and what went wrong."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

from cloudcore.errors import AccessDenied, NotFound, PlatformError
from cloudcore.web.context import Platform
from cloudcore.web.envelope import render
from registry.console import (
    deleted,
    event_rules,
    garbage_collection,
    images,
    index_deletion,
    lifecycle,
    pins,
    policies,
    repositories,
    settings,
    sign_in,
    storage,
    tags,
)
from registry.console.control_plane import Application, ControlPlaneClient, Refused
from registry.console.messages import (
    Receive,
    Request,
    Response,
    Scope,
    Send,
    read_request,
    redirect,
)
from registry.console.rendering import Pages
from registry.console.routing import Needs, Parameters, Route, Router
from registry.console.sessions import COOKIE, CookieJar, NoRole, Session, Sessions, SignedOut
from registry.console.visit import House, Visit
from registry.services.context import ServiceContext

_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self';"
    " img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_FOREVER: Final = "public, max-age=31536000, immutable"

_log = logging.getLogger(__name__)


async def send_asset(visit: Visit, parameters: Parameters) -> Response:
    """Send a file that pages refer to."""
    asset = visit.house.pages.assets.get(parameters["asset"])
    if asset is None:
        raise NotFound("there is no such file")
    is_this = visit.request.query.get("v") == asset.version
    kept = {"cache-control": _FOREVER if is_this else "no-cache"}
    return Response(200, asset.content, asset.content_type, kept)


ROUTES: Final = [
    Route("GET", "/console/static/{asset}", send_asset, Needs.NOTHING),
    *sign_in.ROUTES,
    *repositories.ROUTES,
    *images.ROUTES,
    *index_deletion.ROUTES,
    *pins.ROUTES,
    *tags.ROUTES,
    *deleted.ROUTES,
    *lifecycle.ROUTES,
    *policies.ROUTES,
    *storage.ROUTES,
    *settings.ROUTES,
    *event_rules.ROUTES,
    *garbage_collection.ROUTES,
]


class Console:
    """Pages over the control plane that it is given."""

    def __init__(self, control: Application, platform: Platform, storage: ServiceContext) -> None:
        self._control = control
        self._router = Router(ROUTES)
        self._house = House(
            Pages(platform.clock),
            Sessions(platform.database, platform.keyring, platform.clock, platform.new_id),
            CookieJar(platform.keyring, platform.settings.auth_url),
            platform.settings.auth_url,
            storage,
        )

    @staticmethod
    def owns(scope: Scope) -> bool:
        """Say whether a request is for a page: below ``/console``, or a browser's for ``/``."""
        path = scope["path"]
        if path == "/":
            return scope["method"] in ("GET", "HEAD") and _takes_pages(scope["headers"])
        return bool(path == "/console" or path.startswith("/console/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request_id = scope["state"]["request_id"]
        try:
            request = await read_request(scope, receive)
        except PlatformError as error:
            bare = Request(scope, "GET", "/console", {}, {}, {}, request_id)
            answer = self._refuse(Visit(self._house, bare, self._client(bare)), error)
        else:
            answer = await self._answer(request)
        answer.headers = {**_HEADERS, **answer.headers, "x-request-id": request_id}
        await answer.send(send, bodiless=scope["method"] == "HEAD")

    def _client(self, request: Request) -> ControlPlaneClient:
        return ControlPlaneClient(self._control, request)

    async def _answer(self, request: Request) -> Response:
        session = self._house.jar.open(COOKIE, request.cookies.get(COOKIE), Session)
        visit = Visit(self._house, request, self._client(request), session)
        try:
            return await self._let_in(visit, session)
        except SignedOut:
            return visit.forget(_to_sign_in(request))
        except NoRole:
            return visit.go(sign_in.ROLES)
        except Refused as error:
            if error.status == 401:
                return visit.forget(_to_sign_in(request))
            return visit.page("error.html", error.status, error=error, by_role=True)
        except PlatformError as error:
            return self._refuse(visit, error)
        except Exception:  # noqa: BLE001 - a bug, which the log tells of
            _log.exception("unexpected failure", extra={"request_id": request.request_id})
            return self._refuse(visit, PlatformError(""))

    async def _let_in(self, visit: Visit, session: Session | None) -> Response:
        """Answer whom the route lets in, with a session that lasts for the whole request."""
        found = self._router.find(visit.request.method, visit.request.path)
        if found is None:
            raise NotFound("there is no such page")
        route, parameters = found
        if route.needs is Needs.NOTHING:
            return await route.handler(visit, parameters)
        sessions = self._house.sessions
        request, client = visit.request, visit.client
        if request.method == "POST" and session is not None:
            _check_own_form(request, session, self._house.auth_url)
        if route.needs is Needs.PERSON:
            live = await sessions.live_person(client, session)
        else:
            live = await sessions.live(client, session)
        answer = await route.handler(Visit(self._house, request, client, live), parameters)
        if live != session and COOKIE not in answer.cookies:
            visit.keep(answer, live)
        return answer

    def _refuse(self, visit: Visit, error: PlatformError) -> Response:
        status, body = render(error, visit.request.request_id)
        told: Mapping[str, Any] = body["error"]
        refused = Refused(
            status, told["code"], told["message"], told["request_id"], told.get("params")
        )
        return visit.page("error.html", status, error=refused, by_role=False)


def _takes_pages(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return True if ``Accept`` names HTML, as browsers do and programs do not."""
    wanted = b",".join(value for name, value in headers if name == b"accept").lower()
    ranges = (each.replace(b" ", b"").split(b";") for each in wanted.split(b","))
    return any(kind == b"text/html" and b"q=0" not in more for kind, *more in ranges)


def _check_own_form(request: Request, session: Session, auth_url: str) -> None:
    """Refuse a form that no page of this session sent.

    Raises:
        AccessDenied: it comes from another site, or without the session's own token.

    """
    origin = request.header(b"origin")
    ours = {request.host, urlsplit(auth_url).netloc}
    if origin is not None and urlsplit(origin).netloc not in ours:
        raise AccessDenied("the form came from another site")
    if not hmac.compare_digest(request.form.get("csrf", "").encode(), session.csrf.encode()):
        raise AccessDenied("the form is of an earlier sign-in; go back, reload, and send it again")


def _to_sign_in(request: Request) -> Response:
    if request.method != "GET":
        return redirect(f"{sign_in.SIGNED_OUT}?said=sign-in-over")
    query = request.scope["query_string"].decode("latin-1")
    wanted = f"{request.path}?{query}" if query else request.path
    return redirect(f"{sign_in.SIGN_IN}?to={quote(wanted)}")
