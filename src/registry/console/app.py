"""The console as an ASGI application: Litestar with the routes of `routes_of`, and common headers.

The Litestar application is built once per process, which takes about 75 ms. The settings of an
install are in a `ConsoleApp`, which is passed with each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Final, cast

from litestar import Litestar
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.template import TemplateConfig
from litestar.types import Message, Receive, Scope, Send

from cloudcore.clock import Clock
from cloudcore.family import Family
from cloudcore.identity.oauth.forms import MAX_FORM_BYTES
from cloudcore.keyring import Keyring
from cloudcore.serving.asgi import Receive as BodyReceive
from cloudcore.serving.asgi import header_values
from cloudcore.serving.bodies.budget import BODIES
from cloudcore.serving.dispatch import Application
from cloudcore.web.route_spec import router_of
from registry.console import assets, pages
from registry.console.addresses import CONSOLE, page_of_reference
from registry.console.admission import admit
from registry.console.error_pages import EXCEPTION_HANDLERS
from registry.console.menu import nouns_of
from registry.console.nouns.handlers import noun_handlers
from registry.console.page_request import ConsoleApp, ConsoleSettings, PageRequest, page_of
from registry.console.rendering import template_engine
from registry.console.sessions import CookieJar, Once, Sessions


def routes_of(families: tuple[Family[Any], ...]) -> Sequence[HTTPRouteHandler]:
    """Return the handlers of static files, of the modules of `pages`, and of families' nouns."""
    found = walk_packages(pages.__path__, f"{pages.__name__}.")
    modules = (assets, *(import_module(each.name) for each in found))
    own = (each for module in modules for each in vars(module).values())
    described = (each for noun in nouns_of(families) for each in noun_handlers(noun))
    return [*(each for each in own if isinstance(each, HTTPRouteHandler)), *described]


_HEADERS: Final = {
    b"cache-control": b"no-store",
    b"content-security-policy": assets.POLICY.encode(),
    b"cross-origin-opener-policy": b"same-origin",
    b"referrer-policy": b"same-origin",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
_NOWHERE: Final = "/\0"
"""A path that no route has."""


class Console:
    """The web pages, as an ASGI application over one control plane."""

    def __init__(
        self,
        control: Application,
        settings: ConsoleSettings,
        *,
        keyring: Keyring,
        clock: Clock,
        once: Once,
    ) -> None:
        """Seal cookies with `keyring`; renew sessions with `once`, which works across workers."""
        jar = CookieJar(keyring, settings.own_url)
        nouns = nouns_of(settings.families)
        self._console = ConsoleApp(control, settings, Sessions(once, clock), jar, nouns)
        self._app = litestar_app(settings.families)

    @staticmethod
    def owns(scope: Any) -> bool:  # noqa: ANN401 - an ASGI scope
        """Return True for ``/console`` and paths below it.

        Also True for a browser's request of ``/``, or of an image reference such as
        ``/acme/app:1.4``.
        """
        path = scope["path"]
        if path == CONSOLE or path.startswith(f"{CONSOLE}/"):
            return True
        if scope["method"] not in ("GET", "HEAD") or not _takes_pages(scope):
            return False
        return path == "/" or page_of_reference(path) is not None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Answer a request."""
        page = PageRequest(self._console, scope, receive)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        inner = {**scope, "method": method, "path": _routed_path(page)}
        with BODIES.hold() as hold:
            metered = hold.metered(cast("BodyReceive", receive))
            await self._app(
                cast("Scope", inner), cast("Receive", metered), _completing(page, scope, send)
            )


@cache
def litestar_app(families: tuple[Family[Any], ...]) -> Litestar:
    """Return the Litestar application of this process, which serves any number of installs."""
    return Litestar(
        route_handlers=[router_of(routes_of(families))],
        before_request=admit,
        dependencies={"page": Provide(_page, sync_to_thread=False)},
        exception_handlers=EXCEPTION_HANDLERS,
        template_config=TemplateConfig(instance=template_engine()),
        request_max_body_size=MAX_FORM_BYTES,
        openapi_config=None,
        logging_config=None,
    )


def _page(scope: Scope) -> PageRequest:
    return page_of(scope)


def _routed_path(page: PageRequest) -> str:
    """Return the path by which the route is found, percent-encoded as it was sent.

    A path with empty segments is routed nowhere: the framework would ignore the segments. Image
    references are routed like ``/``.
    """
    path = page.path if page.address is None else page.address.routed
    if path == "/console/":
        return "/console"
    if page.path != CONSOLE and not page.path.startswith(f"{CONSOLE}/"):
        return "/"
    is_ambiguous = "//" in path or (len(path) > 1 and path.endswith("/"))
    return _NOWHERE if is_ambiguous else path


def _completing(page: PageRequest, scope: Any, send: Any) -> Send:  # noqa: ANN401 - ASGI
    """Return a `send` that adds headers and cookies to a response; for HEAD, it drops the body."""
    is_head = scope["method"] == "HEAD"

    async def complete(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message["headers"])
            given = {name.lower() for name, _ in headers}
            headers += [pair for pair in _HEADERS.items() if pair[0] not in given]
            headers.append((b"x-request-id", page.request_id.encode()))
            headers += [
                (b"set-cookie", cookie.encode("latin-1")) for cookie in page.set_cookies.values()
            ]
            message["headers"] = headers
        elif message["type"] == "http.response.body" and is_head:
            message["body"] = b""
        await send(message)

    return complete


def _takes_pages(scope: Scope) -> bool:
    """Return True if ``Accept`` names HTML, as browsers do."""
    wanted = b",".join(header_values(scope, b"accept")).lower()
    ranges = (each.replace(b" ", b"").split(b";") for each in wanted.split(b","))
    return any(kind == b"text/html" and b"q=0" not in more for kind, *more in ranges)
