"""What is stored, and what deduplication saves, as a picture."""

from __future__ import annotations

from typing import Final

from registry.console.messages import Response
from registry.console.of_repository import PATH, api_path, read_repository
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit

_SHOWN: Final = 50


async def show_account(visit: Visit, _: Parameters) -> Response:
    """Show what the account stores."""
    found = await visit.api.get("/v1/storage-usage", group_by="repository")
    usage = found["storage_usage"]
    return visit.page(
        "storage.html",
        usage=usage,
        repositories=usage["repositories"][:_SHOWN],
        largest=max((each["size_bytes"] for each in usage["repositories"]), default=0),
        hidden=max(0, len(usage["repositories"]) - _SHOWN),
    )


async def show_repository(visit: Visit, parameters: Parameters) -> Response:
    """Show what a repository stores."""
    repository = await read_repository(visit, parameters)
    found = await visit.api.get(f"{api_path(parameters)}/storage")
    return visit.page("repository_storage.html", repository=repository, storage=found["storage"])


ROUTES: Final = [
    Route("GET", "/console/storage", show_account),
    Route("GET", f"{PATH}/storage", show_repository),
]
