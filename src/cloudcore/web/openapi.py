"""Generate the OpenAPI 3.1 document from the declarations of the routes alone.

It lists the statuses that can occur: no 415 for an operation without a body. Statuses that only the
handler knows, such as those of a conflict, are declared in its ``opt``.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from inspect import cleandoc
from typing import Any, Final

import msgspec
from litestar import Response
from msgspec.inspect import StructType, multi_type_info

from cloudcore.error_codes import TABLE
from cloudcore.web.context import Reply
from cloudcore.web.envelope import ErrorShape
from cloudcore.web.idempotency import RECORDED_STATUSES
from cloudcore.web.route_spec import KernelRoute, RouteError, RouteSpec
from cloudcore.web.streams import StreamReply

VERSION: Final = "1.0.0"

_SCHEMAS: Final = "#/components/schemas/{name}"
_HEADERS: Final = {
    "X-Request-Id": ("The id of this request, made by the server.", "string"),
    "WWW-Authenticate": ("How to authenticate (RFC 6750).", "string"),
    "Retry-After": ("Seconds after which to try again, never 0.", "integer"),
    "ETag": ("The entity tag of the content (RFC 9110 §8.8.3).", "string"),
    "Location": (
        "The path of the resource that was created, or of the run that was started.",
        "string",
    ),
    "X-RateLimit-Limit": ("Requests allowed in a window.", "integer"),
    "X-RateLimit-Remaining": ("Requests left in this window.", "integer"),
    "X-RateLimit-Reset": ("Seconds until the window ends.", "integer"),
    "Cache-Control": ("`no-store`: it is for its caller alone, and may hold secrets.", "string"),
    "Idempotency-Replayed": ("`true` when this is the outcome of an earlier request.", "string"),
}
_RATE_HEADERS: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_ERROR_HEADERS: Final = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
_IDEMPOTENCY_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A request sent again with its key within 24 hours gets the first outcome.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
}
_CONDITIONS: Final = {
    "If-Match": "Entity tags of which the resource must have one; `*`: it must exist.",
    "If-None-Match": "Entity tags of which the resource must have none; `*`: it must not exist.",
}
_RANGES: Final = {
    "Range": "The part that is wanted, such as `bytes=0-1023` (RFC 9110 §14.2); without it, all.",
    "If-Range": "The entity tag that the content must have for `Range` to apply; else all is sent.",
}

_TAIL: Final = (
    "The rest of the path, byte for byte: slashes may stand in it as they are or as `%2F`, also"
    " twice or at its end. All else is percent-encoded UTF-8, without null characters."
)
_TAIL_SCHEMA: Final = {"type": "string", "minLength": 1, "pattern": "^[^\\u0000]+$"}
_BINARY: Final = {"type": "string", "format": "binary"}
_BYTES: Final = {"application/octet-stream": {"schema": _BINARY}}

Json = dict[str, Any]


def document(
    routes: Sequence[KernelRoute], error_shapes: Mapping[str, ErrorShape], default: ErrorShape
) -> Json:
    """Return the OpenAPI document for `routes`.

    `error_shapes` maps path prefixes to the shapes of errors; those of other paths have the shape
    `default`.
    """
    types = _Types([*_shapes(routes), default.schema, *(s.schema for s in error_shapes.values())])
    paths: dict[str, Json] = {}
    for route in routes:
        shape = default
        for prefix, other in error_shapes.items():
            shape = other if route.spec.path.startswith(prefix) else shape
        operation = _operation(route, types, shape)
        paths.setdefault(route.spec.path, {})[route.spec.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Entrepot control plane", "version": VERSION},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": {path: dict(sorted(paths[path].items())) for path in sorted(paths)},
        "components": {
            "schemas": dict(sorted(types.components.items())),
            "headers": {
                name: {"description": words, "schema": {"type": kind}}
                for name, (words, kind) in _HEADERS.items()
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def check_names(routes: Sequence[KernelRoute]) -> None:
    """Raise `RouteError` if two operations have the same name."""
    named: set[str] = set()
    for route in routes:
        if route.handler.fn.__name__ in named:
            raise RouteError(f"{route.spec.operation}: another operation has its name")
        named.add(route.handler.fn.__name__)


def statuses(spec: RouteSpec) -> list[int]:
    """Return every status with which an operation can answer."""
    can = {
        401: not spec.public,
        304: spec.entity_tag,
        403: spec.action is not None,
        400: True,  # a bad body, or one where none is taken
        404: "{" in spec.path and spec.malformed_id == 404,
        409: spec.idempotent,
        412: spec.conditional,
        413: bool(spec.body or spec.form or spec.max_stream_bytes is not None),
        415: spec.body is not None,
        422: spec.idempotent,
        429: spec.rate_limited,
    }
    always = {spec.status, 500, 503, *spec.statuses}
    return sorted(always | {status for status, does in can.items() if does})


class _Types:
    """The schemas of all types, by name."""

    def __init__(self, types: Sequence[Any]) -> None:
        unique = list({str(shape): shape for shape in types}.values())
        schemas, components = msgspec.json.schema_components(unique, ref_template=_SCHEMAS)
        if twice := sorted(name for name in components if "." in name):
            raise RouteError(f"two shapes share a name: {', '.join(twice)}")
        words = described_fields(unique)
        self.components = {
            name: _completed(schema, words.get(name, {})) for name, schema in components.items()
        }
        self._schemas = dict(zip(map(str, unique), schemas, strict=True))

    def schema(self, shape: Any) -> Json:  # noqa: ANN401 - a type
        """Return the schema of a type, usually a reference to a named one."""
        return self._schemas[str(shape)]


def _completed(schema: Json, words: Mapping[str, str]) -> Json:
    """Return a Struct's schema with its fields' docstrings as descriptions."""
    properties: Mapping[str, Json] = schema.get("properties", {})
    told = {
        name: {"description": words[name], **_sized(each)} if name in words else _sized(each)
        for name, each in properties.items()
    }
    return {**schema, "properties": told} if told else schema


def _sized(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Add the format ``int64`` to integers, for which generators assume 32 bits."""
    if isinstance(schema, list):
        return [_sized(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    sized = {name: _sized(value) for name, value in schema.items()}
    return {"format": "int64", **sized} if schema.get("type") == "integer" else sized


def _shapes(routes: Sequence[KernelRoute]) -> list[Any]:
    specs = [route.spec for route in routes]
    given = [shape for spec in specs for shape in (spec.body, spec.form) if shape]
    return given + [shape for route in routes if (shape := _answered(route)) is not None]


def _answered(route: KernelRoute) -> Any:  # noqa: ANN401 - a type
    """Return the type of the JSON body of a success, or None if there is none."""
    returned = route.handler.parsed_fn_signature.return_type
    if returned.origin in (Reply, Response):
        returned = returned.inner_types[0]
    if _gives_stream(route):
        return None
    if returned.annotation in (None, type(None), Reply) or returned.is_subclass_of((str, bytes)):
        return None
    origin = getattr(returned.annotation, "__origin__", returned.annotation)
    is_framework = str(getattr(origin, "__module__", "")).startswith("litestar")
    return None if is_framework else returned.annotation


def _gives_stream(route: KernelRoute) -> bool:
    return route.handler.parsed_fn_signature.return_type.is_subclass_of(StreamReply)


def _operation(route: KernelRoute, types: _Types, errors: ErrorShape) -> Json:
    spec, handler = route.spec, route.handler
    summary, _, description = cleandoc(handler.fn.__doc__ or "").partition("\n")
    operation: Json = {
        "operationId": handler.fn.__name__,
        "summary": summary,
        "tags": [spec.action.partition(":")[0] if spec.action else spec.path.split("/")[2]],
    }
    if description.strip():
        operation["description"] = description.strip()
    if spec.action:
        operation["x-iam-action"] = spec.action
    if spec.public:
        operation["security"] = [{}, {"bearer": []}] if spec.rate_limited else []
    if parameters := _parameters(spec):
        operation["parameters"] = parameters
    if body := _request_body(spec, types):
        operation["requestBody"] = body
    operation["responses"] = {
        str(status): _response(status, route, types, errors) for status in statuses(spec)
    }
    return operation


def _parameters(spec: RouteSpec) -> list[Json]:
    found: list[Json] = [
        {
            "name": segment[1:-1],
            "in": "path",
            "required": True,
            **_path_schema(spec, segment[1:-1]),
        }
        for segment in spec.path.split("/")
        if segment.startswith("{")
    ]
    if spec.query is not None:
        found.extend(_query_parameters(spec.query))
    if spec.idempotent:
        found.append(_IDEMPOTENCY_KEY)
    headers = {
        name: words
        for name, words in _CONDITIONS.items()
        if spec.conditional or (spec.entity_tag and name == "If-None-Match")
    }
    if HTTPStatus.PARTIAL_CONTENT in spec.statuses:
        headers |= _RANGES
    found.extend(
        {"name": name, "in": "header", "description": words, "schema": {"type": "string"}}
        for name, words in headers.items()
    )
    return found


def _path_schema(spec: RouteSpec, name: str) -> Json:
    if name in spec.id_parameters:
        return {"schema": {"type": "string", "format": "uuid"}}
    if name == spec.tail:
        return {"description": _TAIL, "schema": _TAIL_SCHEMA, "x-entrepot-tail": True}
    return {"schema": {"type": "string"}}


def _query_parameters(shape: type[msgspec.Struct]) -> Iterator[Json]:
    _, components = msgspec.json.schema_components([shape], ref_template=_SCHEMAS)
    described = components[shape.__name__]
    words = described_fields([shape])[shape.__name__]
    for name, schema in described["properties"].items():
        parameter = {
            "name": name,
            "in": "query",
            "required": name in described.get("required", []),
            "schema": _without_null(schema),
        }
        yield {**parameter, "description": words[name]} if name in words else parameter


def _without_null(schema: Json) -> Json:
    """Remove null from a query parameter's schema: the parameter is left out instead."""
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    if schema.get("default") is not None:
        kept["default"] = schema["default"]
    for choice in schema.get("anyOf", ()):
        if choice != {"type": "null"}:
            kept = {**choice, **kept}
    return kept


def _request_body(spec: RouteSpec, types: _Types) -> Json | None:
    if spec.takes_stream:
        return {"required": False, "content": _BYTES}
    if spec.body is not None:
        content = {"application/json": {"schema": types.schema(spec.body)}}
        return {"required": spec.is_body_required, "content": content}
    if spec.form is not None:
        content = {"application/x-www-form-urlencoded": {"schema": types.schema(spec.form)}}
        is_required = any(field.required for field in msgspec.structs.fields(spec.form))
        return {"required": is_required, "content": content}
    return None


def _response(status: int, route: KernelRoute, types: _Types, errors: ErrorShape) -> Json:
    spec = route.spec
    names = _header_names(status, spec)
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    if status in spec.pages:
        content: Json = {"text/html": {"schema": {"type": "string"}}}
        if status == HTTPStatus.BAD_REQUEST and not spec.takes_body:  # refused before the handler
            content["application/json"] = {"schema": types.schema(errors.schema)}
        return {"description": HTTPStatus(status).phrase, "headers": headers, "content": content}
    if status >= 400:
        codes = sorted({code for found, code in TABLE.values() if found == status})
        return {
            "description": " or ".join(f"`{code}`" for code in codes) or HTTPStatus(status).phrase,
            "headers": headers,
            "content": {"application/json": {"schema": types.schema(errors.schema)}},
        }
    response: Json = {"description": HTTPStatus(status).phrase, "headers": headers}
    if status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        return response
    if spec.media_types:
        response["content"] = {each: _content(each) for each in spec.media_types}
    elif _gives_stream(route) and status < 300:
        response["content"] = _BYTES
    shape = _answered(route)
    if shape is not None:
        response["content"] = {"application/json": {"schema": types.schema(shape)}}
    return response


def _content(media_type: str) -> Json:
    """Describe content without a shape: JSON documents, bytes, or either with any media type.

    With any media type there is no schema: an object in a bucket may be declared as JSON without
    being valid JSON.
    """
    if media_type == "*/*":
        return {}
    return {"schema": {"type": "object"} if media_type.endswith("json") else _BINARY}


def _header_names(status: int, spec: RouteSpec) -> tuple[str, ...]:
    is_silent = spec.silent_limit and status == HTTPStatus.TOO_MANY_REQUESTS
    names = (*(() if is_silent else _ERROR_HEADERS.get(status, ())), "X-Request-Id")
    if spec.rate_limited and (status < 300 or status == HTTPStatus.TOO_MANY_REQUESTS):
        names += _RATE_HEADERS
    if spec.entity_tag and status < 400:
        names += ("ETag",)
    if status < 300 and not spec.may_be_stored:
        names += ("Cache-Control",)
    if spec.idempotent and (status < 300 or status in RECORDED_STATUSES):
        names += ("Idempotency-Replayed",)
    if spec.idempotent and status == HTTPStatus.CONFLICT:  # while the first attempt runs
        names += ("Retry-After",)
    if spec.method == "POST" and status in (HTTPStatus.CREATED, HTTPStatus.ACCEPTED):
        names += ("Location",)
    return names


def described_fields(types: Sequence[Any]) -> dict[str, dict[str, str]]:
    """Map the names of all Structs within `types` to maps from field names to docstrings.

    Without Python source files, these maps are empty.
    """
    return {struct.__name__: _words(struct) for struct in _structs(multi_type_info(types))}


def _structs(described: Sequence[msgspec.Struct]) -> set[type]:
    """Return the Structs within msgspec's type descriptions, at any depth."""
    found: set[type] = set()
    waiting: list[Any] = [*described]
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple):
            waiting.extend(each)
        elif isinstance(each, msgspec.Struct) and getattr(each, "cls", None) not in found:
            if isinstance(each, StructType):
                found.add(each.cls)
            waiting.extend(getattr(each, name) for name in each.__struct_fields__)
    return found


def _words(struct: type) -> dict[str, str]:
    """Map field names of a Struct to docstrings, including inherited ones.

    A Struct that is made at run time may use the docstrings of another Struct (``described_by``),
    and set further ones by name (``field_words``).
    """
    found: dict[str, str] = {}
    if (described_by := vars(struct).get("described_by")) is not None:
        found |= _words(described_by)
    for base in reversed(struct.__mro__):
        found |= _of_module(base.__module__).get(base.__qualname__, {})
    more: Mapping[str, str] = vars(struct).get("field_words", {})
    return found | dict(more)


@cache
def _of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Map the names of a module's classes to maps from field names to docstrings."""
    try:
        source = inspect.getsource(sys.modules[name])
    except (KeyError, OSError, TypeError):  # created at run time, or without source
        return {}
    classes = (each for each in ast.parse(source).body if isinstance(each, ast.ClassDef))
    return {definition.name: _of_class(definition) for definition in classes}


def _of_class(definition: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = inspect.cleandoc(words)
    return found
