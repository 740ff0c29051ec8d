"""Routes that say too little keep the server from starting, and the table of the specification."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, cast

import pytest
from litestar import get, post
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.routes import HTTPRoute

from cloudcore.db.base import Database
from cloudcore.web.app import ControlPlane, Needs, Routes, family_routes
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.reference_pages import OWN_PATHS
from cloudcore.web.route_spec import RouteError, RouteSpec, router_of
from tests.control_plane import make_world
from tests.spec.operations import OPERATIONS, Operation, differences, parse
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


TABLE = """
POST   /v1/things                CreateThing   201 key
GET    /v1/things                ListThings    200
GET    /v1/things-by-age         ListThings    200
GET    /v1/things/{id}           GetThing      200
PATCH  /v1/things/{id}           UpdateThing   200
DELETE /v1/things/{id}           DeleteThing   204
POST   /v1/things/{id}/parts     CreatePart    201 key
GET    /v1/test-templates/{x}         GetThing      200
GET    /v1/weather               -             200 public limited
GET    /v1/regions               -             200 public later
"""
THINGS = [
    *parse("test", TABLE),
    *parse("test", "GET /v1/shared/{id} GetShared 200"),
]
"""The family of the tests, as the table would have it."""


@pytest.fixture(scope="module")
def specs() -> list[RouteSpec]:
    app = make_world(cast("Database", None)).app  # which nobody asks here
    return [route.spec for route in app.routes if route.spec.path not in OWN_PATHS]


def changed(place: str, **fields: Any) -> list[Operation]:  # noqa: ANN401 - of any field
    return [
        operation._replace(**fields) if operation.place == place else operation
        for operation in THINGS
    ]


def test_routes_as_in_the_table_do_not_differ(specs: list[RouteSpec]) -> None:
    assert differences(specs, THINGS) == []


def test_a_missing_route_and_a_route_too_many_are_found(specs: list[RouteSpec]) -> None:
    fewer = [spec for spec in specs if spec.operation != "POST /v1/things"]
    assert differences(fewer, THINGS) == ["POST /v1/things: no route"]
    assert differences(specs, THINGS[1:]) == ["POST /v1/things: not in the table"]


def test_a_route_before_its_time_is_found(specs: list[RouteSpec]) -> None:
    early = changed("GET /v1/weather", is_built=False)
    assert differences(specs, early) == ["GET /v1/weather: not in the table"]


@pytest.mark.parametrize(
    ("place", "name", "value", "words"),
    [
        ("GET /v1/things/{}", "action", "test:ListThings", "action is test:GetThing"),
        ("GET /v1/things/{}", "success", frozenset({200, 201}), "success is"),
        ("POST /v1/things", "takes_key", False, "key is True"),
        ("GET /v1/weather", "is_public", False, "public is True"),
        ("GET /v1/weather", "is_limited", False, "limited is True"),
    ],
)
def test_every_fact_is_compared(
    specs: list[RouteSpec], place: str, name: str, value: object, words: str
) -> None:
    (difference,) = differences(specs, changed(place, **{name: value}))
    assert difference.startswith(f"{place}: {words}")


def test_the_table_names_each_operation_once() -> None:
    assert max(Counter(operation.place for operation in OPERATIONS).values()) == 1


def test_the_table_keeps_the_rules_of_all_families() -> None:
    for operation in OPERATIONS:
        if operation.action is not None:
            assert not operation.is_public
            assert re.fullmatch(r"[a-z]+:[A-Z][A-Za-z]+", operation.action)
        if operation.method == "DELETE":
            assert operation.success <= {200, 202, 204}
        if operation.method == "PATCH":
            assert operation.success == {200}
        if operation.takes_key:
            assert operation.method == "POST"
        if operation.is_limited:
            assert operation.is_public


def test_the_specifications_own_rows_are_in_the_table() -> None:
    """Part 4: its four operations that list 422 take a key, and only two are limited."""
    keyed = {operation.path for operation in OPERATIONS if operation.takes_key}
    assert {
        "/v1/suppressions",
        "/v1/dedicated-ips",
        "/v1/buckets/{bucket}/multipart-uploads",
        "/v1/certificates/{certificate_id}/revoke",
    } <= keyed
    limited = {operation.path for operation in OPERATIONS if operation.is_limited}
    assert limited == {"/v1/regions", "/v1/prices"}
