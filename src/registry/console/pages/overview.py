"""The overview of the account: storage and pulls by day, what grew, what is stale."""

from __future__ import annotations

from typing import Final

from litestar import get

from registry.console.control_plane import unless_refused
from registry.console.page_request import InjectedPage, PageResponse

_SPANS: Final = (30, 90, 366)
"""Days that a person can choose from."""
_SHOWN: Final = 10
_STALE_DAYS: Final = 90


@get("/console/overview")
async def show_overview(page: InjectedPage) -> PageResponse:
    """Show the account's days, and what to look at."""
    written = page.query.get("days", "")
    days = next((each for each in _SPANS if str(each) == written), _SPANS[0])
    history = await unless_refused(page.api.get("/v1/storage-usage/history", days=days))
    usage = await unless_refused(page.api.get("/v1/storage-usage"))
    collection = await unless_refused(page.api.get("/v1/garbage-collection"))
    stale = await unless_refused(
        page.api.get(
            "/v1/repositories/stale",
            days=_STALE_DAYS,
            limit=_SHOWN,
            marker=page.query.get("stale"),
        )
    )
    return page.show(
        "overview.html",
        days=days,
        spans=_SPANS,
        history=history and history["storage_history"],
        usage=usage and usage["storage_usage"],
        collection=collection and collection["garbage_collection"],
        stale=stale,
        stale_days=_STALE_DAYS,
    )


HANDLERS: Final = (show_overview,)
