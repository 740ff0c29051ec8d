"""The description of the API is true: what is answered is what is described."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.control_plane import Options, World, open_world
from tests.thing_files import Shelf, file_routes
from tests.things import HANDLERS

SOMETIMES = {"Idempotency-Replayed", "Location"}
"""Headers that only some answers of a status have; another is `Retry-After` of a 409."""
VERBS = {"get", "put", "post", "patch", "delete"}


async def description(world: World) -> dict[str, Any]:
    answer = await world.ask("GET", "/v1/openapi.json", token=None)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    described: dict[str, Any] = answer.json()
    return described


@pytest.fixture
async def described(plane: World) -> dict[str, Any]:
    """Return what the control plane over the family of things says of itself."""
    return await description(plane)


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for child in value.values():
            yield from references(child)
    if isinstance(value, list):
        for child in value:
            yield from references(child)


async def test_the_document_is_whole(described: dict[str, Any]) -> None:
    assert described["openapi"] == "3.1.0"
    assert described["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert len(list(operations(described))) == len(HANDLERS)
    names = [operation["operationId"] for _, _, operation in operations(described)]
    assert len(set(names)) == len(names)
    for method, path, operation in operations(described):
        assert method in VERBS
        assert operation["summary"]
        shown = {item["name"] for item in operation.get("parameters", []) if item["in"] == "path"}
        assert shown == set(re.findall(r"\{(\w+)\}", path))
    for reference in set(references(described)):
        target: Any = described
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
    for schema in described["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


async def test_statuses_are_those_that_can_occur(described: dict[str, Any]) -> None:
    statuses = {
        f"{method.upper()} {path}": " ".join(operation["responses"])
        for method, path, operation in operations(described)
    }
    assert statuses == {
        "POST /v1/things": "201 400 401 403 409 413 415 422 500 503",
        "GET /v1/things": "200 400 401 403 500 503",
        "GET /v1/things-by-age": "200 400 401 403 500 503",
        "GET /v1/things/{thing_id}": "200 400 401 403 404 500 503",
        "PATCH /v1/things/{thing_id}": "200 400 401 403 404 413 415 500 503",
        "DELETE /v1/things/{thing_id}": "204 400 401 403 404 500 503",
        "POST /v1/things/{thing_id}/parts": "201 400 401 403 404 409 413 415 422 500 503",
        "GET /v1/test-templates/{template_id}": "200 400 401 403 404 500 503",
        "GET /v1/shared/{thing_id}": "200 400 401 403 404 500 503",
        "GET /v1/weather": "200 400 429 500 503",
    }


async def test_route_specs_are_described(described: dict[str, Any]) -> None:
    create = described["paths"]["/v1/things"]["post"]
    assert create["x-iam-action"] == "test:CreateThing"
    assert [item["name"] for item in create["parameters"]] == ["Idempotency-Key"]
    assert create["requestBody"]["required"]
    assert set(create["responses"]["401"]["headers"]) == {"WWW-Authenticate", "X-Request-Id"}
    body = described["components"]["schemas"]["CreateThing"]
    assert body["additionalProperties"] is False
    listing = described["paths"]["/v1/things"]["get"]["parameters"]
    shown = {item["name"]: (item["required"], item["schema"]) for item in listing}
    assert shown["limit"][1] | {"description": ""} == {
        "type": "integer",
        "minimum": 1,
        "maximum": 200,
        "default": 50,
        "description": "",
    }
    assert shown["colour"] == (False, {"enum": ["blue", "red"]})
    assert set(shown) == {"limit", "marker", "name_prefix", "colour", "deep"}
    part = described["paths"]["/v1/things/{thing_id}/parts"]["post"]
    assert not part["requestBody"]["required"]
    weather = described["paths"]["/v1/weather"]["get"]
    assert weather["security"] == [{}, {"bearer": []}]
    assert "X-RateLimit-Limit" in weather["responses"]["200"]["headers"]
    assert "Retry-After" in weather["responses"]["429"]["headers"]


async def test_headers_fields_and_shapes_are_described(described: dict[str, Any]) -> None:
    responses = described["paths"]["/v1/things"]["post"]["responses"]
    for status in ("201", "400", "409"):  # the outcomes that are kept
        assert "Idempotency-Replayed" in responses[status]["headers"]
    assert "Idempotency-Replayed" not in responses["415"]["headers"]
    assert "Retry-After" in responses["409"]["headers"]
    assert "Location" in responses["201"]["headers"]
    schemas = described["components"]["schemas"]
    meta, created = schemas["PageMeta"]["properties"], schemas["CreateThing"]["properties"]
    # By their docstrings.
    assert meta["total"]["description"] == "Rows of the whole list, under the filter."
    assert "description" not in meta["has_more"]
    assert created["description"]["description"] == "For people."
    queries = described["paths"]["/v1/things"]["get"]["parameters"]
    words = {each["name"]: each.get("description") for each in queries}
    assert words["name_prefix"] == "Things whose names begin so."
    assert words["colour"] is None
    # Without a format some generators give them 32 bits, and an image of 3 GB breaks the client.
    assert meta["total"]["format"] == created["size"]["format"] == "int64"
    # No shape is listed that nothing refers to, such as those of queries, and none of the page.
    assert set(schemas) <= {reference.rpartition("/")[2] for reference in references(described)}
    assert "/v1/openapi.json" not in described["paths"]
    assert "/v1/reference" not in json.dumps(described)


def check(described: dict[str, Any], template: str, answer: httpx.Response) -> None:
    """Assert that an answer is one that the document describes."""
    operation = described["paths"][template][answer.request.method.lower()]
    response = operation["responses"][str(answer.status_code)]
    sometimes = SOMETIMES | ({"Retry-After"} if answer.status_code == 409 else set())
    told = {name.lower() for name in response["headers"]}
    assert told - {name.lower() for name in sometimes} <= set(answer.headers)
    assert set(answer.headers) <= told | {"content-type", "content-length"}
    if "content" not in response:
        assert answer.content == b""
        return
    schema = response["content"][answer.headers["content-type"]]["schema"]
    Draft202012Validator({**schema, "components": described["components"]}).validate(answer.json())


async def test_answers_are_as_described(plane: World) -> None:
    described = await description(plane)
    made = await plane.ask("POST", "/v1/things", {"name": "a"}, key="k")
    one = f"/v1/things/{made.json()['thing']['id']}"
    for template, method, path, body in [
        ("/v1/things", "POST", "/v1/things", {"name": "b"}),
        ("/v1/things", "POST", "/v1/things", {"name": "b"}),
        ("/v1/things", "POST", "/v1/things", {"nome": "b"}),
        ("/v1/things", "POST", "/v1/things", b" " * (2 << 20)),
        ("/v1/things", "GET", "/v1/things?limit=1", None),
        ("/v1/things", "GET", "/v1/things?limit=x", None),
        ("/v1/things/{thing_id}", "GET", one, None),
        ("/v1/things/{thing_id}", "PATCH", one, {}),
        ("/v1/things/{thing_id}/parts", "POST", f"{one}/parts", None),
        ("/v1/things/{thing_id}", "DELETE", one, None),
        ("/v1/things/{thing_id}", "DELETE", one, None),
        ("/v1/test-templates/{template_id}", "GET", "/v1/test-templates/x", None),
        ("/v1/test-templates/{template_id}", "GET", f"/v1/test-templates/{uuid4()}", None),
        *[("/v1/weather", "GET", "/v1/weather", None)] * 4,
    ]:
        for token in ("writer", "nobody"):
            check(described, template, await plane.ask(method, path, body, token=token))
    again = await plane.ask("POST", "/v1/things", {"name": "c"}, key="k")
    assert again.status_code == 422
    check(described, "/v1/things", again)


class Links(HTMLParser):
    """Collects what a page would fetch, and where it jumps to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.fetched: list[str] = []
        self.targets: list[str] = []
        self.jumps: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = {name: str(value) for name, value in attrs}
        self.targets += [given["id"]] if "id" in given else []
        for link in (given[name] for name in ("href", "src") if name in given):
            if link.startswith("#"):
                self.jumps.add(link[1:])
            else:
                self.fetched.append(link)


async def test_the_page_needs_nothing_from_elsewhere(sqlite_database: str) -> None:
    async with open_world(sqlite_database, Options(faulty=True)) as world:
        answer = await world.ask("GET", "/v1/reference", token=None)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        page = Links()
        page.feed(answer.text)
        assert page.fetched == ["openapi.json"]
        assert not page.tags & {"script", "link", "img", "iframe", "form"}
        assert len(page.targets) == len(set(page.targets))
        assert page.jumps <= set(page.targets)
        for handler in HANDLERS:
            assert f"operation-{handler.fn.__name__}" in page.targets


async def test_tails_and_streams_are_described(sqlite_database: str, tmp_path: Path) -> None:
    async with open_world(sqlite_database, Options(more=file_routes(Shelf(tmp_path)))) as plane:
        described = await description(plane)
        page = (await plane.ask("GET", "/v1/reference", token=None)).text
    methods = described["paths"]["/v1/things/{thing_id}/files/{key}"]
    assert {method: " ".join(methods[method]["responses"]) for method in methods} == {
        "delete": "204 400 401 403 404 500 503",
        "get": "200 400 401 403 404 500 503",
        "put": "201 400 401 403 404 413 500 503",
    }
    thing, key = methods["put"]["parameters"]
    assert "x-entrepot-tail" not in thing
    assert key["x-entrepot-tail"] is True
    assert key["required"] is True
    assert "%2F" in key["description"]
    binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    assert methods["put"]["requestBody"]["content"] == binary
    assert methods["get"]["responses"]["200"]["content"] == binary
    parts = described["paths"]["/v1/things/{thing_id}/parts/{key}"]["get"]["responses"]
    assert parts["200"]["content"] == {"text/plain": binary["application/octet-stream"]}
    count = described["paths"]["/v1/things/{thing_id}/counts/{key}"]["post"]["responses"]
    assert "413" not in count  # it takes any number of bytes
    assert "Body, application/octet-stream" in page
    assert "byte for byte" in page
