"""Gather handlers so that the framework makes little of each: a server has hundreds of them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from litestar import Router, route
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler


def router_of(handlers: Sequence[HTTPRouteHandler], **options: Any) -> Router:  # noqa: ANN401
    """Return a router of `handlers`, with `options` of the framework's.

    They share one answer to OPTIONS, which the application refuses before it is asked: the
    framework would make one for each path. A declared handler would keep the router it was given
    to, of which the application makes a copy for itself; so the router gets copies.
    """
    if not handlers:  # the framework would take no path for the root
        return Router("/", route_handlers=[], **options)
    paths = sorted({path for handler in handlers for path in handler.paths})
    answer = route(paths, http_method=HttpMethod.OPTIONS, status_code=204)(_never_reached)
    return Router("/", route_handlers=[answer, *map(copy, handlers)], **options)


async def _never_reached() -> None:
    """Do nothing."""
