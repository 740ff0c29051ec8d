"""Garbage collection: what waits for it, stage by stage, and what its runs have done."""

from __future__ import annotations

from typing import Final

from registry.console.messages import Response
from registry.console.of_repository import unless_refused
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit

_PATH: Final = "/console/storage/collection"
_API: Final = "/v1/garbage-collection"
_PAGE: Final = 20


async def show_collection(visit: Visit, _: Parameters) -> Response:
    """Show the way of bytes, and the runs, the newest first."""
    found = await visit.api.get(_API)
    runs = await visit.api.get(
        f"{_API}/runs", marker=visit.request.query.get("marker"), limit=_PAGE
    )
    usage = await unless_refused(visit.api.get("/v1/storage-usage"))
    return visit.page(
        "garbage_collection.html",
        collection=found["garbage_collection"],
        usage=usage and usage["storage_usage"],
        runs=runs["runs"],
        meta=runs["meta"],
    )


async def collect(visit: Visit, _: Parameters) -> Response:
    """Collect now what is due."""
    await visit.api.post(f"{_API}/runs")
    return visit.go(_PATH, "collection-started")


ROUTES: Final = [
    Route("GET", _PATH, show_collection),
    Route("POST", _PATH, collect),
]
