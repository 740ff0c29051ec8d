"""The storage of the account and of a repository, its history, and garbage collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from litestar import get, post

from cloudcore.clock import MICROSECONDS
from cloudcore.wire import rfc3339
from registry.console.addresses import REPOSITORY
from registry.console.control_plane import unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repositories.repositories import api_path, read_repository

_SHOWN: Final = 50


@get("/console/storage")
async def show_account(page: InjectedPage) -> PageResponse:
    """Show the storage usage of the account and of its repositories."""
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
    """Show the storage usage of a repository."""
    repository = await read_repository(page)
    found = await page.api.get(f"{api_path(page)}/storage")
    return page.show("repository_storage.html", repository=repository, storage=found["storage"])


_PATH: Final = "/console/storage/collection"
_API: Final = "/v1/garbage-collection"


@get(_PATH)
async def show_collection(page: InjectedPage) -> PageResponse:
    """Show the stages of garbage collection, and the runs, newest first."""
    found = await page.api.get(_API)
    runs = await page.api.get(f"{_API}/runs", marker=page.marker, limit=20)
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
    return page.go(_PATH, "A run of the collector has started.")


_SPANS: Final = (30, 90, 366)
"""Numbers of days that a person can choose."""
_STALE_DAYS: Final = 90
MEASURED_SECONDS: Final = 6 * 3600
"""Seconds between two measurements; they begin at multiples of this number since the epoch."""


@get("/console/overview")
async def show_overview(page: InjectedPage) -> PageResponse:
    """Show the account's storage and pulls by day, its growth, and stale repositories."""
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
        stale = await page.api.get(path, days=_STALE_DAYS, limit=10, marker=marker)
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
    """Return the recorded days, with the current size for today."""
    size = sum(each["size_bytes"] for each in usage["repositories"])
    today = rfc3339(page.now)[:10]
    pulls = sum(each["pulls"] for each in days if each["day"] == today)
    before = [each for each in days if each["day"] != today]
    return [*before, {"day": today, "size_bytes": size, "pulls": pulls}]


def _next_measurement(page: PageRequest) -> str:
    seconds = page.now // MICROSECONDS
    due = (seconds // MEASURED_SECONDS + 1) * MEASURED_SECONDS
    return datetime.fromtimestamp(due, UTC).isoformat()
