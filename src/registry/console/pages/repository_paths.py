"""Paths and data that the pages of a repository share."""

from __future__ import annotations

from typing import Any

from registry.console.page_request import PageRequest
from registry.console.paths import HOME


def page_path(page: PageRequest) -> str:
    """Return the path of the repository's first page."""
    return f"{HOME}/{page.parameters['repository']}"


def api_path(page: PageRequest) -> str:
    """Return the path of the repository on ``/v1``."""
    return f"/v1/repositories/{page.parameters['repository']}"


async def read_repository(page: PageRequest) -> dict[str, Any]:
    """Return the repository of the requested page."""
    answer: dict[str, Any] = await page.api.get(api_path(page))
    found: dict[str, Any] = answer["repository"]
    return found
