"""The overview of the account: storage and pulls by day, what grew, what is stale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from litestar import get

from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_SPANS: Final = (30, 90, 366)
"""Days that a person can choose from."""
_SHOWN: Final = 10
_STALE_DAYS: Final = 90
MEASURED_SECONDS: Final = 6 * 3600
"""Seconds between two measurements, which begin at multiples of it since the epoch."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@get("/console/overview")
async def show_overview(page: InjectedPage) -> PageResponse:
    """Show the account's days, and what to look at."""
    written = page.query.get("days", "")
    days = next((each for each in _SPANS if str(each) == written), _SPANS[0])
    rights = await page.rights()
    history = usage = collection = stale = None
    recorded: list[Mapping[str, Any]] = []
    if rights.may_all("registry:DescribeStorageUsage"):
        found = await page.api.get("/v1/storage-usage/history", days=days)
        history = found["storage_history"]
        usage = (await page.api.get("/v1/storage-usage", group_by="repository"))["storage_usage"]
        recorded = _with_today(page, history["days"], usage)
    if rights.may_all("registry:DescribeGarbageCollection"):
        collection = (await page.api.get("/v1/garbage-collection"))["garbage_collection"]
    if rights.may_all("registry:DescribeRepositories"):
        marker = page.query.get("stale")
        path = "/v1/repositories/stale"
        stale = await page.api.get(path, days=_STALE_DAYS, limit=_SHOWN, marker=marker)
    return page.show(
        "overview.html",
        days=days,
        spans=_SPANS,
        history=history,
        recorded=recorded,
        next_measurement=_next_measurement(page),
        usage=usage,
        collection=collection,
        stale=stale,
        stale_days=_STALE_DAYS,
    )


def _with_today(
    page: PageRequest, days: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Return the recorded days with the present size as that of today."""
    size = sum(each["size_bytes"] for each in usage["repositories"])
    today = f"{_EPOCH + timedelta(microseconds=page.console.sessions.now()):%Y-%m-%d}"
    pulls = sum(each["pulls"] for each in days if each["day"] == today)
    before = [each for each in days if each["day"] != today]
    return [*before, {"day": today, "size_bytes": size, "pulls": pulls}]


def _next_measurement(page: PageRequest) -> str:
    seconds = page.console.sessions.now() // 1_000_000
    due = (seconds // MEASURED_SECONDS + 1) * MEASURED_SECONDS
    return (_EPOCH + timedelta(seconds=due)).isoformat()


HANDLERS: Final = (show_overview,)
