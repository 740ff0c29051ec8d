"""Which path and method is which page, and who may come."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from cloudcore.uuids import UUID_PATTERN
from registry.console.messages import Response
from registry.console.visit import Visit

Parameters = Mapping[str, str]
Handler = Callable[[Visit, Parameters], Awaitable[Response]]

_KINDS: Final = {
    "repository": UUID_PATTERN,
    "rule": UUID_PATTERN,
    "digest": "[a-z0-9]+:[0-9a-f]+",
    "tag": "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}",
    "pin": "[A-Za-z0-9][A-Za-z0-9._-]{0,127}",
    "asset": "[a-z]+[.][a-z]+",
}


class Needs(Enum):
    """Whom a route lets in."""

    NOTHING = "anyone"
    PERSON = "who has signed in"
    ROLE = "who acts in a role"


class Route(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    handler: Handler
    needs: Needs = Needs.ROLE


class Router:
    """Finds the route of a path."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = [(re.compile(_pattern(route.path)), route) for route in routes]

    def find(self, method: str, path: str) -> tuple[Route, Parameters] | None:
        """Return a route and the parameters of its path; None when there is none."""
        for pattern, route in self._routes:
            if route.method == method and (found := pattern.fullmatch(path)):
                return route, found.groupdict()
        return None


def _pattern(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: f"(?P<{name[1]}>{_KINDS[name[1]]})", path)
