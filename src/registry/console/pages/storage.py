"""Storage of the account and of a repository, as bars."""

from __future__ import annotations

from typing import Final

from litestar import get

from registry.console.page_request import InjectedPage, PageResponse
from registry.console.pages.repository_paths import api_path, read_repository
from registry.console.paths import REPOSITORY

_SHOWN: Final = 50


@get("/console/storage")
async def show_account(page: InjectedPage) -> PageResponse:
    """Show how many bytes the account stores, and which repositories hold them."""
    found = await page.api.get("/v1/storage-usage", group_by="repository")
    usage = found["storage_usage"]
    return page.show(
        "storage.html",
        usage=usage,
        repositories=usage["repositories"][:_SHOWN],
        largest=max((each["size_bytes"] for each in usage["repositories"]), default=0),
        hidden=max(0, len(usage["repositories"]) - _SHOWN),
    )


@get(f"{REPOSITORY}/storage")
async def show_repository(page: InjectedPage) -> PageResponse:
    """Show how many bytes a repository takes, and how many it shares."""
    repository = await read_repository(page)
    found = await page.api.get(f"{api_path(page)}/storage")
    return page.show("repository_storage.html", repository=repository, storage=found["storage"])


HANDLERS: Final = (show_account, show_repository)
