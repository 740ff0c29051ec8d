"""The repositories of the account: the list, a new one, the end of one."""

from __future__ import annotations

from typing import Final

from registry.console.messages import Response
from registry.console.of_repository import PATH, api_path
from registry.console.routing import Parameters, Route
from registry.console.sign_in import HOME
from registry.console.visit import Visit

_PAGE: Final = 50


async def list_repositories(visit: Visit, _: Parameters) -> Response:
    """Show the repositories, or those whose names begin with a prefix."""
    query = visit.request.query
    prefix = query.get("prefix", "").strip()
    found = await visit.api.get(
        "/v1/repositories", name_prefix=prefix, marker=query.get("marker"), limit=_PAGE
    )
    return visit.page(
        "repositories.html",
        repositories=found["repositories"],
        meta=found["meta"],
        prefix=prefix,
        registry_url=visit.house.auth_url,
    )


async def create_repository(visit: Visit, _: Parameters) -> Response:
    """Make a repository, and show it."""
    form = visit.request.form
    body = {
        "name": form.get("name", ""),
        "description": form.get("description") or None,
        "tag_mutability": "immutable" if "immutable" in form else "mutable",
    }
    made = await visit.api.post("/v1/repositories", body)
    return visit.go(PATH.format(repository=made["repository"]["id"]), "repository-created")


async def delete_repository(visit: Visit, parameters: Parameters) -> Response:
    """Delete a repository with what it holds."""
    await visit.api.change("DELETE", api_path(parameters), force="true")
    return visit.go(f"{HOME}/deleted", "repository-deleted")


ROUTES: Final = [
    Route("GET", HOME, list_repositories),
    Route("POST", HOME, create_repository),
    Route("POST", f"{PATH}/delete", delete_repository),
]
