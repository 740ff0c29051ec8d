"""The overview of the account: storage and pulls by day, what grew, what is stale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from litestar import get

from registry.console.control_plane import unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_SPANS: Final = (30, 90, 366)
"""Days that a person can choose from."""
_READ: Final = 200
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
    listed = await unless_refused(page.api.get("/v1/repositories", limit=_READ))
    return page.show(
        "overview.html",
        days=days,
        spans=_SPANS,
        history=history and history["storage_history"],
        usage=usage and usage["storage_usage"],
        collection=collection and collection["garbage_collection"],
        stale=stale(listed["repositories"], _before(page))[:_SHOWN] if listed else None,
        stale_days=_STALE_DAYS,
        read=len(listed["repositories"]) if listed else 0,
        total=listed["meta"]["total"] if listed else 0,
    )


def stale(repositories: Sequence[Mapping[str, Any]], before: datetime) -> list[Mapping[str, Any]]:
    """Return the repositories with bytes that were not used since `before`, the largest first."""
    found = [
        each
        for each in repositories
        if each["size_bytes"] and datetime.fromisoformat(last_use(each)) < before
    ]
    return sorted(found, key=lambda each: -int(each["size_bytes"]))


def last_use(repository: Mapping[str, Any]) -> str:
    """Return when a repository was last pushed to or pulled from, or else created."""
    moments = ("created_at", "last_pushed_at", "last_pulled_at")
    return max(str(repository[name]) for name in moments if repository[name] is not None)


def _before(page: PageRequest) -> datetime:
    now = timedelta(microseconds=page.console.sessions.now())
    return datetime(1970, 1, 1, tzinfo=UTC) + now - timedelta(days=_STALE_DAYS)


HANDLERS: Final = (show_overview,)
