"""What was deleted and can be had again: repositories, images and tags."""

from __future__ import annotations

from typing import Final

from registry.console.control_plane import Refused
from registry.console.messages import Response
from registry.console.of_repository import PATH, api_path, page_path, read_repository
from registry.console.routing import Parameters, Route
from registry.console.sign_in import HOME
from registry.console.visit import Visit

_PAGE: Final = 50


async def list_repositories(visit: Visit, _: Parameters) -> Response:
    """Show the deleted repositories of the account."""
    found = await visit.api.get(
        "/v1/repositories/deleted", marker=visit.request.query.get("marker"), limit=_PAGE
    )
    return visit.page(
        "deleted_repositories.html", repositories=found["repositories"], meta=found["meta"]
    )


async def restore_repository(visit: Visit, parameters: Parameters) -> Response:
    """Restore a repository with all it held."""
    await visit.api.post(f"{api_path(parameters)}/restore")
    return visit.go(page_path(parameters), "repository-restored")


async def list_contents(visit: Visit, parameters: Parameters) -> Response:
    """Show the deleted images and tags of a repository."""
    path = api_path(parameters)
    query = visit.request.query
    repository = await read_repository(visit, parameters)
    images = await visit.api.get(f"{path}/images/deleted", marker=query.get("marker"), limit=_PAGE)
    tags = await visit.api.get(f"{path}/deleted-tags", marker=query.get("tags"), limit=_PAGE)
    return visit.page(
        "deleted.html",
        repository=repository,
        images=images["images"],
        meta=images["meta"],
        tags=tags["tags"],
        tags_meta=tags["meta"],
    )


async def restore_image(visit: Visit, parameters: Parameters) -> Response:
    """Restore an image with the tags that mean nothing else by now."""
    outcome = await visit.api.post(
        f"{api_path(parameters)}/images/restore", {"digests": [parameters["digest"]]}
    )
    for failure in outcome["failures"]:
        raise Refused(409, failure["code"], failure["message"], visit.request.request_id)
    return visit.go(
        f"{page_path(parameters)}/images/{outcome['restored'][0]['digest']}", "image-restored"
    )


ROUTES: Final = [
    Route("GET", f"{HOME}/deleted", list_repositories),
    Route("POST", f"{PATH}/restore", restore_repository),
    Route("GET", f"{PATH}/deleted", list_contents),
    Route("POST", f"{PATH}/images/{{digest}}/restore", restore_image),
]
