"""Serve the OpenAPI document, and an HTML page made from it (`templates/reference.html`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
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


class ReferencePages:
    """The routes of the OpenAPI document and of its HTML page, with their content."""

    def __init__(self) -> None:
        self._routes: Sequence[KernelRoute] = ()
        self._error_shapes: Mapping[str, ErrorShape] = {}

    def describe(
        self, routes: Sequence[KernelRoute], error_shapes: Mapping[str, ErrorShape]
    ) -> None:
        """Set the routes to describe: all `routes` below ``/v1`` except the two of this class.

        Raise `RouteError` if two operations have the same name.
        """
        self._routes = [
            route
            for route in routes
            if route.spec.path.startswith("/v1/") and route.spec.path not in OWN_PATHS
        ]
        self._error_shapes = error_shapes
        check_names(self._routes)

    @cached_property
    def _described(self) -> dict[str, Any]:
        """Return the document, generated at the first request, which takes 100 ms.

        Most of that is parsing sources for docstrings.
        """
        return document(self._routes, self._error_shapes, ENVELOPE)

    @cached_property
    def _encoded(self) -> bytes:
        return msgspec.json.encode(self._described)

    @cached_property
    def _page(self) -> str:
        return page(self._described)

    def handlers(self) -> list[HTTPRouteHandler]:
        """Return the two routes."""

        @get("/v1/openapi.json", opt=_OPT)
        async def get_openapi() -> Response[bytes]:
            """Return the OpenAPI document."""
            return Response(self._encoded, media_type="application/json")

        @get("/v1/reference", opt=_OPT)
        async def get_reference() -> Response[str]:
            """Return the page."""
            return Response(self._page, media_type="text/html", headers=_SECURITY)

        return [get_openapi, get_reference]


def page(described: dict[str, Any]) -> str:
    """Render an OpenAPI document as an HTML page."""
    from jinja2 import Environment, PackageLoader  # noqa: PLC0415 - not to start with

    operations = [
        {"method": method.upper(), "path": path, **operation}
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    families = {
        tag: [each for each in operations if each["tags"] == [tag]]
        for tag in sorted({each["tags"][0] for each in operations})
    }
    loader = PackageLoader("cloudcore.web")
    made = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    shown = made.get_template("reference.html")
    return shown.render(described, families=families, as_json=_json)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
