"""Move a repository's blobs to its key: a button on its settings, and how the last run ended."""

from __future__ import annotations

from typing import Any, Final

from litestar import post

from registry.console.control_plane import unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repository_paths import api_path, path_of
from registry.console.paths import REPOSITORY


@post(f"{REPOSITORY}/settings/rewrap")
async def start_rewrap(page: InjectedPage) -> PageResponse:
    """Start to move the blobs of a repository to its key."""
    await page.api.change("POST", f"{api_path(page)}/encryption-binding/rewrap")
    return page.go(path_of(page).tab("settings"), "run-started")


async def read_last_rewrap(page: PageRequest) -> dict[str, Any] | None:
    """Return the last run; None if there is none, or the role may not read it."""
    path = f"{api_path(page)}/encryption-binding/rewrap/runs"
    found = await unless_refused(page.api.get(path, limit=1))
    return found["runs"][0] if found and found["runs"] else None


HANDLERS: Final = (start_rewrap,)
