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
:root {
  color-scheme: light dark;
  --ground: #f7f6f3; --surface: #ffffff; --raised: #f0eeea; --ink: #1b2226; --quiet: #566169;
  --line: #dcd9d2; --accent: #0b5563; --accent-ground: #e3f0f1;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #11171a; --surface: #192125; --raised: #222c31; --ink: #e7ebec; --quiet: #a1adb3;
    --line: #2e393f; --accent: #6cc7d5; --accent-ground: #17343a;
  }
}
*, ::before, ::after { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem }
body { margin: 0; background: var(--ground); color: var(--ink); overflow-wrap: anywhere }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 4px }
a { color: var(--accent) }
header, main { margin: 0 auto; max-width: 64rem; padding: 0 1rem }
h1 { margin: 1.5rem 0 .5rem; font-size: 1.75rem; line-height: 1.25; letter-spacing: -.01em }
h2 { margin: 2.5rem 0 1rem; font-size: 1.375rem }
h3 { margin: 0 0 .75rem; font-size: 1rem; line-height: 1.4 }
p { margin: 0 0 .75rem; max-width: 44rem }
code, pre { font: .875rem/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
  monospace }
h3 code { font-size: 1rem }
pre { margin: 0; padding: .5rem .75rem; background: var(--raised); border-radius: 6px;
  white-space: pre-wrap }
nav details { margin-bottom: .5rem }
nav ul { columns: 20rem; margin: .5rem 0 1rem; padding: 0; list-style: none; font-size: .9375rem }
nav li { padding: .125rem 0; break-inside: avoid }
summary { width: fit-content; font-weight: 600; cursor: pointer }
section { margin-bottom: 1rem; padding: 1rem 1.25rem; background: var(--surface);
  border: 1px solid var(--line); border-radius: 8px }
section > :last-child { margin-bottom: 0 }
section:target { border-color: var(--accent) }
b.method { display: inline-block; min-width: 4.25rem; padding: 0 .5rem; border-radius: 4px;
  font-weight: 650; text-align: center; background: var(--accent-ground) }
table { width: 100%; margin: 0 0 .75rem; border-collapse: collapse; table-layout: fixed }
td, th { padding: .375rem 1rem .375rem 0; border-top: 1px solid var(--line); text-align: left;
  vertical-align: top; font-weight: 400 }
th { width: 14rem } td:nth-child(2):not(:last-child) { width: 5rem; color: var(--quiet) }
.quiet { color: var(--quiet) }
@media (max-width: 44rem) {
  table, tbody, tr, th, td { display: block; width: auto !important }
  tr { padding: .5rem 0; border-top: 1px solid var(--line) }
  th, td { padding: 0 0 .25rem; border: 0 }
  section { padding: .875rem 1rem }
}
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
    contents = "".join(
        f"<details><summary>{escape(tag)}</summary><ul>"
        + "".join(_entry(*found) for found in operations if found[2]["tags"] == [tag])
        + "</ul></details>"
        for tag in tags
    )
    shapes = "".join(
        f"<section id='schema-{escape(name)}'><h3>{escape(name)}</h3>{_json(schema)}</section>"
        for name, schema in described["components"]["schemas"].items()
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f"<header><h1>{title} {escape(described['info']['version'])}</h1>"
        "<p class='quiet'>The same as an <a href='openapi.json'>OpenAPI document</a>; "
        "what the operations take and return is under <a href='#schemas'>schemas</a>.</p>"
        f"<nav aria-label='Operations'>{contents}</nav></header>"
        f"<main>{families}<h2 id='schemas'>Schemas</h2>{shapes}</main></body></html>"
    )


def _entry(method: str, path: str, operation: dict[str, Any]) -> str:
    """Render an operation's line in the contents."""
    there = escape(operation["operationId"])
    return (
        f"<li><a href='#operation-{there}'>{escape(operation['summary'])}</a> "
        f"<span class='quiet'>{escape(method.upper())} {escape(path)}</span></li>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    action = operation.get("x-iam-action")
    parts = [
        f"<h3><code><b class='method'>{escape(method.upper())}</b> {escape(path)}</code></h3>",
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
            f"<tr><th scope='row'><code>{status}</code></th>"
            f"<td>{escape(response['description'])} "
            f"{_shape(content['schema']) if content else ''}</td></tr>"
        )
    parts.append("</table>")
    return f"<section id='operation-{escape(operation['operationId'])}'>{''.join(parts)}</section>"


def _parameters(parameters: Sequence[dict[str, Any]]) -> str:
    rows = "".join(
        f"<tr><th scope='row'><code>{escape(parameter['name'])}</code></th>"
        f"<td>{parameter['in']}</td>"
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
