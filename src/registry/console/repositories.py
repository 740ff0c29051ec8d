"""The repositories of the account: the list, a new one, the end of one."""

from __future__ import annotations

from typing import Final

from registry.console.control_plane import Refused
from registry.console.messages import Response
from registry.console.of_repository import PATH, api_path
from registry.console.routing import Parameters, Route
from registry.console.sign_in import HOME
from registry.console.visit import Visit

_PAGE: Final = 50


async def list_repositories(visit: Visit, _: Parameters) -> Response:
    """Show the repositories, or those whose names begin with a prefix."""
    return await _page(visit)


async def create_repository(visit: Visit, _: Parameters) -> Response:
    """Make a repository, and show it."""
    form = visit.request.form
    body = {
        "name": form.get("name", ""),
        "description": form.get("description") or None,
        "tag_mutability": "immutable" if "immutable" in form else "mutable",
    }
    try:
        made = await visit.api.post("/v1/repositories", body)
    except Refused as error:
        if error.status not in (400, 409):
            raise
        field = "description" if error.params.get("field") == "description" else "name"
        return await _page(visit, error.status, field, error.sentence)
    return visit.go(PATH.format(repository=made["repository"]["id"]), "repository-created")


async def delete_repository(visit: Visit, parameters: Parameters) -> Response:
    """Delete a repository with what it holds."""
    await visit.api.change("DELETE", api_path(parameters), force="true")
    return visit.go(f"{HOME}/deleted", "repository-deleted")


async def _page(visit: Visit, status: int = 200, field: str = "", complaint: str = "") -> Response:
    query = visit.request.query
    prefix, marker = query.get("prefix", "").strip(), query.get("marker")
    try:
        found = await visit.api.get(
            "/v1/repositories", name_prefix=prefix, marker=marker, limit=_PAGE
        )
    except Refused as error:
        if error.status != 400 or marker or not prefix:
            raise
        found = {"repositories": [], "meta": None}  # no name can begin like that
    return visit.page(
        "repositories.html",
        status,
        repositories=found["repositories"],
        meta=found["meta"],
        prefix=prefix,
        registry_url=visit.house.auth_url,
        field=field,
        complaint=complaint,
    )


ROUTES: Final = [
    Route("GET", HOME, list_repositories),
    Route("POST", HOME, create_repository),
    Route("POST", f"{PATH}/delete", delete_repository),
]
