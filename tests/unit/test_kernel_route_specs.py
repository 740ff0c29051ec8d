"""Routes that do not say what they must keep the server from starting (default deny)."""

from __future__ import annotations

from typing import Any

import pytest
from litestar import get, post
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.routes import HTTPRoute

from cloudcore.web.app import ControlPlane, Needs, Routes, family_routes
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.route_spec import RouteError, router_of
from tests.things import Weather


def route(**options: Any) -> HTTPRouteHandler:  # noqa: ANN401 - the decorator's own
    @post("/v1/x", **options)
    async def answer() -> Weather:
        return Weather(is_fine=True)

    return answer


def keyed(**opt: object) -> HTTPRouteHandler:
    @post("/v1/x", opt={"idempotent": True, **opt})
    async def answer() -> Reply[Weather]:
        return Reply(201, b"")

    return answer


@get("/v1/x", opt={"action": None, "public": True})
async def with_query(limit: FromQuery[int]) -> None:
    """Declare a query parameter where nobody reads it strictly."""


@get("/v1/x/{number:int}", opt={"action": None, "public": True})
async def with_number(number: FromPath[int]) -> None:
    """Let the framework read a path parameter."""


@post("/v1/x", opt={"action": None, "public": True})
async def with_form(data: JSONBody[Weather], ctx: NamedDependency[RequestContext]) -> None:
    """Do nothing wrong."""


async def skip_the_guard(_: object) -> None:
    """Take the guard's place."""


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (route(), "names no action"),
        (route(opt={"public": True}), "names no action"),
        (route(opt={"action": "create"}), "is no action"),
        (route(opt={"action": ""}), "is no action"),
        (route(opt={"action": "a:B", "public": True}), "neither an action"),
        (route(opt={"action": None, "pubic": True}), "pubic"),
        (route(opt={"action": None, "public": "yes"}), "public"),
        (route(opt={"action": "a:B", "idempotent": True}), "returns the Reply"),
        (keyed(action=None, public=True), "neither an action"),
        (route(opt={"action": None, "change_check": skip_the_guard}), "an action and a change"),
        (with_query, "declares query parameters"),
        (with_number, "is read as text"),
        (
            route(opt={"action": None, "public": True}, before_request=skip_the_guard),
            "would replace the guard",
        ),
        (route(opt={"action": "a:B"}), "takes an Idempotency-Key"),
        (route(status_code=202, opt={"action": "a:B"}), "takes an Idempotency-Key"),
        (route(status_code=200, opt={"action": "a:B"}), "without a platform"),
    ],
)
def test_the_server_does_not_start(handler: HTTPRouteHandler, words: str) -> None:
    with pytest.raises(RouteError, match=words):
        ControlPlane(Routes([handler]))


def test_the_error_names_the_route() -> None:
    with pytest.raises(RouteError, match=r"POST /v1/x"):
        ControlPlane(Routes([route()]))


def test_what_says_enough_starts() -> None:
    ControlPlane(Routes([with_form, route_of("/v1/y")]))


def route_of(path: str) -> HTTPRouteHandler:
    @get(path, opt={"action": None, "public": True})
    async def answer() -> None:
        return None

    return answer


@get("/v1/forecast", opt={"action": None, "public": True})
async def forecast(needs: Needs[Weather]) -> Weather:
    return needs


def test_handlers_share_one_answer_to_options_and_do_not_keep_their_router() -> None:
    declared = [route_of("/v1/rain"), route_of("/v1/snow")]
    paths = [path for path in router_of(declared).routes if isinstance(path, HTTPRoute)]
    handlers = [handler for path in paths for handler in path.route_handlers]
    options = {id(handler) for handler in handlers if handler.http_methods == {"OPTIONS"}}
    assert (len(paths), len(handlers), len(options)) == (2, 4, 1)
    assert [each.owner for each in declared] == [None, None]


def test_a_family_without_routes_takes_no_path() -> None:
    assert router_of([]).routes == []


def test_a_family_without_its_dependencies_keeps_the_server_from_starting() -> None:
    routes = Routes([family_routes("weather", [forecast], has_platform=False)])
    ControlPlane(routes, needs={"weather": Weather(is_fine=True)})
    with pytest.raises(RouteError, match="dependencies of the family weather are missing"):
        ControlPlane(routes)
