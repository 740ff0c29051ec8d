"""Requests: what schemathesis makes of the document, told where things are and what they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import requests
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.generation.meta import CoveragePhaseData, CoverageScenario
from schemathesis.schemas import APIOperation, BaseSchema

from tests.fuzz.install import FuzzedInstall
from tests.fuzz.known import Json, Known, Place
from tests.soak import IS_SOAK
from tests.tenants import bearer

Operation = APIOperation[Any, Any, Any, Any]
AnyCase = Case[Any]

PRIVILEGED: Final = ("admin", "person")
"""Who together may do everything: a program in its account, an owner in the organization."""
_OTHERS: Final = ("role", "nobody", "stranger", "no one", "forger")
"""The last two show no token, and one that nobody signed."""
_FORGED: Final = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjcm46aWFtOjp4OnVzZXIveCJ9."


KEYS: Final = ("a", "a/b", "a//b", "/a", "a/", "a%2Fb", "%", "a+b", "a b?#&", "ä\u2028🐳")
"""Tails of paths. Those with dots the client would take for steps."""


class Sent(NamedTuple):
    """A generated request, and who sends it."""

    case: AnyCase
    callers: tuple[str, ...]
    """Each is tried until one is not forbidden to."""
    has_cookie: bool

    def request(self, install: FuzzedInstall, caller: str) -> requests.PreparedRequest:
        """Return the request of this caller."""
        headers = {}
        if caller != "no one":
            headers = bearer(install.bearers.get(caller, _FORGED))
        if self.has_cookie:
            headers["Cookie"] = install.cookie
        serialized = self.case.as_transport_kwargs(base_url=install.url, headers=headers)
        return requests.Request(**serialized).prepare()


def on_wire(request: requests.PreparedRequest) -> httpx.Request:
    """Return a request as it goes over the wire."""
    body = request.body.encode() if isinstance(request.body, str) else request.body
    assert body is None or isinstance(body, bytes)
    raw = [(name.encode(), _octets(value)) for name, value in request.headers.items()]
    return httpx.Request(str(request.method), str(request.url), headers=raw, content=body)


def operations(schema: BaseSchema) -> Iterator[Operation]:
    """Yield the operations of a document, which has to be sound."""
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        yield result.ok()


def breach(case: AnyCase) -> tuple[str, ...] | None:
    """Return in what way a corner case breaks which parameter or member, or None if it does not.

    All methods that a path does not have are one way.
    """
    if case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE:
        return None
    data = case.meta.phase.data
    assert isinstance(data, CoveragePhaseData)
    if data.scenario is CoverageScenario.UNSPECIFIED_HTTP_METHOD:
        return (data.scenario,)
    # Of a member, the description names it: "handle: Incorrect type". So it may of a parameter.
    parameter = data.parameter or ""
    return data.scenario, parameter, data.description.removeprefix(f"{parameter}: ")


def _octets(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")


class Cases:
    """The requests of one operation."""

    def __init__(self, operation: Operation, known: Known) -> None:
        self._operation = operation
        self._known = known
        self._places: list[Place | None] = [*known.places(operation.path)] or [None]
        self._body = _fields_of_body(operation)
        self._query = {
            parameter["name"]: parameter["schema"]
            for parameter in operation.definition.raw.get("parameters", ())
            if parameter["in"] == "query"
        }
        self._tails = [
            parameter["name"]
            for parameter in operation.definition.raw.get("parameters", ())
            if parameter.get("x-entrepot-tail")
        ]
        is_open = operation.definition.raw.get("security") == []
        self.likely: tuple[str, ...] = ("no one",) if is_open else PRIVILEGED
        """Who may send it. A caller that is forbidden to costs a request: it had better be last."""

    def corners(self) -> Iterator[Sent]:
        """Yield what stands at the edges of the schemas: each bound, each member left out.

        Of what breaks the schema, the first case of each `breach`; all of them with ``SOAK`` above
        one.
        """
        schema = self._operation.schema
        found = schema.iter_coverage_cases(
            self._operation,
            generation_modes=list(GenerationMode),
            generation_config=schema.config.generation,
        )
        known: set[tuple[str, ...]] = set()
        for case in found:
            kind = breach(case)
            if kind in known and not IS_SOAK:
                continue
            if kind is not None:
                known.add(kind)
            path = case.meta and case.meta.components.get(ParameterLocation.PATH)
            if path and path.mode is GenerationMode.POSITIVE and self._places[0]:
                case.path_parameters = dict(self._places[0])
            yield Sent(case, self.likely, has_cookie=True)

    def sensible(self) -> st.SearchStrategy[Sent]:
        """Return requests of the schema about what there is, from those who may make them."""
        return st.composite(self._sensible)()

    def any(self) -> st.SearchStrategy[Sent]:
        """Return requests of the schema and against it, from anyone."""
        return st.composite(self._any)()

    def _sensible(self, draw: st.DrawFn) -> Sent:
        place = draw(st.sampled_from(self._places))
        case = draw(self._of_schema(GenerationMode.POSITIVE, place))
        self._speak_sense(draw, case, place)
        self._choose_tails(draw, case)
        return Sent(case, self.likely, has_cookie=True)

    def _any(self, draw: st.DrawFn) -> Sent:
        place = draw(st.sampled_from([*self._places, None]))
        case = draw(self._of_schema(draw(st.sampled_from(list(GenerationMode))), place))
        self._choose_tails(draw, case)
        caller = draw(st.sampled_from((*self.likely * 3, *_OTHERS)))
        return Sent(case, (caller,), draw(st.booleans()))

    def _of_schema(self, mode: GenerationMode, place: Place | None) -> st.SearchStrategy[AnyCase]:
        return self._operation.as_strategy(generation_mode=mode, path_parameters=place or None)

    def _speak_sense(self, draw: st.DrawFn, case: AnyCase, place: Place | None) -> None:
        """Put values that mean something into most fields, and leave out what is none."""
        if isinstance(case.body, dict) and self._body:
            case.body = self._with_values(draw, case.body, self._body)
        elif isinstance(case.body, dict):
            case.body = draw(st.sampled_from(self._known.values("document")))
        if self._query:
            case.query = self._with_values(draw, case.query, self._query)
            if place is not None and "marker" in self._query and draw(st.booleans()):
                case.query["marker"] = self._known.marker(self._operation.path, place)

    def _choose_tails(self, draw: st.DrawFn, case: AnyCase) -> None:
        """End the path in a key, as it takes any; its slashes are encoded or not."""
        for name in self._tails:
            tail = quote(draw(st.sampled_from(KEYS)), safe=draw(st.sampled_from(("/", ""))))
            case.path_parameters = {**case.path_parameters, name: tail}

    def _with_values(
        self, draw: st.DrawFn, given: Mapping[str, Json], fields: Mapping[str, Json]
    ) -> dict[str, Json]:
        found = {name: value for name, value in given.items() if name in fields}
        for field, schema in fields.items():
            values = [value for value in self._known.values(field) if _may_be(schema, value)]
            if values and draw(st.integers(0, 3)) < 3:
                found[field] = draw(st.sampled_from(values))
        return found


def _fields_of_body(operation: Operation) -> dict[str, Json]:
    """Return the schemas of the body's fields."""
    body = operation.definition.raw.get("requestBody", {"content": {}})
    schemas: list[Json] = [content["schema"] for content in body["content"].values()]
    found: dict[str, Json] = {}
    for schema in schemas:
        schemas.extend(schema.get("anyOf", ()))
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            schemas.append(operation.schema.raw_schema["components"]["schemas"][name])
        found.update(schema.get("properties", {}))
    return found


def _may_be(schema: Json, value: Json) -> bool:
    """Say whether a schema leaves open what to write, or names the value."""
    words = json.dumps(schema)
    return "enum" not in words or json.dumps(value) in words
