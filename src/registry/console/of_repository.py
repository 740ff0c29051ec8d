"""What the pages of one repository have in common."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from registry.console.control_plane import Refused
from registry.console.routing import Parameters
from registry.console.visit import Visit

T = TypeVar("T")

PATH: Final = "/console/repositories/{repository}"


def page_path(parameters: Parameters) -> str:
    """Return the path of a repository's first page."""
    return PATH.format(repository=parameters["repository"])


def api_path(parameters: Parameters) -> str:
    """Return where ``/v1`` has a repository."""
    return f"/v1/repositories/{parameters['repository']}"


async def read_repository(visit: Visit, parameters: Parameters) -> dict[str, Any]:
    """Return the repository whose page is asked for."""
    answer: dict[str, Any] = await visit.api.get(api_path(parameters))
    found: dict[str, Any] = answer["repository"]
    return found


async def unless_refused(reading: Awaitable[T]) -> T | None:
    """Return what is read; None where there is none, or the visitor may not see it."""
    try:
        return await reading
    except Refused as error:
        if error.status in (403, 404):
            return None
        raise
