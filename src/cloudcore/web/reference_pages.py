"""Serve the OpenAPI document, and an HTML page of it.

The page is plain HTML without scripts or external resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from typing import Any, Final

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from cloudcore.web.envelope import ENVELOPE, ErrorShape
from cloudcore.web.openapi import check_names, document
from cloudcore.web.route_spec import KernelRoute

OWN_PATHS: Final = frozenset({"/v1/openapi.json", "/v1/reference"})

_OPT: Final = {"action": None, "public": True}
_SECURITY: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem }
code, pre { font: 14px/1.4 ui-monospace, monospace }
pre { background: #8881; overflow: auto; padding: .5rem }
section { border-top: 1px solid #8886; margin-top: 1rem }
h3 code { font-size: 1.1rem } table { border-collapse: collapse }
td, th { padding: .1rem 1rem .1rem 0; text-align: left; vertical-align: top }
:root { color-scheme: light dark }
"""


class ReferencePages:
    """The two routes and their content."""

    def __init__(self) -> None:
        self._routes: Sequence[KernelRoute] = ()
        self._error_shapes: Mapping[str, ErrorShape] = {}

    def describe(
        self, routes: Sequence[KernelRoute], error_shapes: Mapping[str, ErrorShape]
    ) -> None:
        """Set the routes to describe: all `routes` below ``/v1`` except these two.

        Raises:
            RouteError: two operations have the same name.

        """
        self._routes = [
            route
            for route in routes
            if route.spec.path.startswith("/v1/") and route.spec.path not in OWN_PATHS
        ]
        self._error_shapes = error_shapes
        check_names(self._routes)

    @cached_property
    def _made(self) -> tuple[bytes, bytes]:
        """Return document and page, generated at the first request: it takes 100 ms.

        Most of that is parsing sources for docstrings.
        """
        made = document(self._routes, self._error_shapes, ENVELOPE)
        return msgspec.json.encode(made), page(made).encode()

    def handlers(self) -> list[HTTPRouteHandler]:
        """Return the two routes."""

        @get("/v1/openapi.json", opt=_OPT)
        async def get_openapi() -> Response[bytes]:
            """Return the OpenAPI document."""
            return Response(self._made[0], media_type="application/json")

        @get("/v1/reference", opt=_OPT)
        async def get_reference() -> Response[bytes]:
            """Return the page."""
            return Response(self._made[1], media_type="text/html", headers=_SECURITY)

        return [get_openapi, get_reference]


def page(described: dict[str, Any]) -> str:
    """Render an OpenAPI document as an HTML page."""
    operations = [
        (method, path, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    tags = sorted({operation["tags"][0] for _, _, operation in operations})
    title = escape(described["info"]["title"])
    families = "".join(
        f"<h2 id='family-{escape(tag)}'>{escape(tag)}</h2>"
        + "".join(_operation(*found) for found in operations if found[2]["tags"] == [tag])
        for tag in tags
    )
    shapes = "".join(
        f"<section id='schema-{escape(name)}'><h3>{escape(name)}</h3>{_json(schema)}</section>"
        for name, schema in described["components"]["schemas"].items()
    )
    contents = " · ".join(f"<a href='#family-{escape(tag)}'>{escape(tag)}</a>" for tag in tags)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{title} {escape(described['info']['version'])}</h1>"
        f"<p>{contents} · <a href='#schemas'>schemas</a> · <a href='openapi.json'>OpenAPI</a></p>"
        f"{families}<h2 id='schemas'>Schemas</h2>{shapes}</body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    action = operation.get("x-iam-action")
    parts = [
        f"<h3><code>{escape(method.upper())} {escape(path)}</code></h3>",
        f"<p>{escape(operation['summary'])}</p>",
        f"<p>{escape(operation['description'])}</p>" if "description" in operation else "",
        f"<p>Needs <code>{escape(action)}</code>.</p>" if action else "",
        _parameters(operation.get("parameters", [])),
    ]
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body, {escape(media_type)}: {_shape(content['schema'])}</p>")
    parts.append("<table>")
    for status, response in operation["responses"].items():
        content = response.get("content", {}).get("application/json")
        parts.append(
            f"<tr><td><code>{status}</code></td><td>{escape(response['description'])}</td>"
            f"<td>{_shape(content['schema']) if content else ''}</td></tr>"
        )
    parts.append("</table>")
    return f"<section id='operation-{escape(operation['operationId'])}'>{''.join(parts)}</section>"


def _parameters(parameters: Sequence[dict[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{parameter['in']}</td>"
        f"<td>{escape(parameter.get('description', ''))}{_json(parameter['schema'])}</td></tr>"
        for parameter in parameters
    )
    return f"<table>{rows}</table>" if rows else ""


def _shape(schema: dict[str, Any]) -> str:
    """Render a link to a named schema, or the schema itself."""
    if "$ref" not in schema:
        return _json(schema)
    name = escape(schema["$ref"].rpartition("/")[2])
    return f"<a href='#schema-{name}'>{name}</a>"


def _json(value: Any) -> str:  # noqa: ANN401 - JSON
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<pre>{escape(text)}</pre>"
