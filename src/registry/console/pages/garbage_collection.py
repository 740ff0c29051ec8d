"""Garbage collection: the bytes in each stage, and the runs."""

from __future__ import annotations

from typing import Final

from litestar import get, post

from registry.console.control_plane import unless_refused
from registry.console.page_request import InjectedPage, PageResponse

_PATH: Final = "/console/storage/collection"
_API: Final = "/v1/garbage-collection"
_PAGE: Final = 20


@get(_PATH)
async def show_collection(page: InjectedPage) -> PageResponse:
    """Show how many bytes each stage holds, and the runs, the newest first."""
    found = await page.api.get(_API)
    runs = await page.api.get(f"{_API}/runs", marker=page.query.get("marker"), limit=_PAGE)
    usage = await unless_refused(page.api.get("/v1/storage-usage"))
    return page.show(
        "garbage_collection.html",
        collection=found["garbage_collection"],
        usage=usage and usage["storage_usage"],
        runs=runs["runs"],
        meta=runs["meta"],
    )


@post(_PATH)
async def collect(page: InjectedPage) -> PageResponse:
    """Start a run of the collector."""
    await page.api.post(f"{_API}/runs")
    return page.go(_PATH, "collection-started")


HANDLERS: Final = (show_collection, collect)
