"""The table of the specification is sound, and the comparison with it finds what differs."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, cast

import pytest

from cloudcore.db.base import Database
from cloudcore.web.reference_pages import OWN_PATHS
from cloudcore.web.route_spec import RouteSpec
from tests.control_plane import make_world
from tests.spec.operations import OPERATIONS, Operation, differences, parse

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
