"""Tags: where they point, where they pointed before, and moving them."""

from __future__ import annotations

from typing import Final

from cloudcore.errors import InvalidInput
from registry.console.messages import Response
from registry.console.of_repository import (
    PATH,
    api_path,
    page_path,
    read_repository,
    unless_refused,
)
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit
from registry.oci.reference import is_tag

_TAGS: Final = f"{PATH}/tags"
_TAG: Final = f"{_TAGS}/{{tag}}"
_PAGE: Final = 50


async def list_tags(visit: Visit, parameters: Parameters) -> Response:
    """Show the tags in byte order."""
    query = visit.request.query
    prefix = query.get("prefix", "").strip()
    repository = await read_repository(visit, parameters)
    found = await visit.api.get(
        f"{api_path(parameters)}/tags", prefix=prefix, marker=query.get("marker"), limit=_PAGE
    )
    return visit.page(
        "tags.html",
        repository=repository,
        tags=found["tags"],
        meta=found["meta"],
        prefix=prefix,
    )


async def show_tag(visit: Visit, parameters: Parameters) -> Response:
    """Show a tag with its history; also one that is no more."""
    path = f"{api_path(parameters)}/tags/{parameters['tag']}"
    repository = await read_repository(visit, parameters)
    history = await visit.api.get(
        f"{path}/history", marker=visit.request.query.get("marker"), limit=_PAGE
    )
    found = await unless_refused(visit.api.get(path))
    return visit.page(
        "tag.html",
        repository=repository,
        name=parameters["tag"],
        tag=found and found["tag"],
        history=history["history"],
        meta=history["meta"],
    )


async def put_tag(visit: Visit, parameters: Parameters) -> Response:
    """Point a tag to an image, given by its digest or by another tag of it."""
    form = visit.request.form
    name = parameters.get("tag") or form.get("tag", "").strip()
    if not is_tag(name):
        raise InvalidInput(
            "a tag is 1 to 128 letters, digits, '_', '.' and '-', and begins with none of the last"
        )
    target = form.get("target", "").strip()
    if is_tag(target):
        other = await visit.api.get(f"{api_path(parameters)}/tags/{target}")
        target = other["tag"]["digest"]
    path = f"{api_path(parameters)}/tags/{name}"
    was_there = await unless_refused(visit.api.get(path))
    await visit.api.change("PUT", path, {"digest": target})
    return visit.go(
        f"{page_path(parameters)}/tags/{name}", "tag-moved" if was_there else "tag-created"
    )


async def delete_tag(visit: Visit, parameters: Parameters) -> Response:
    """Delete a tag; its image stays."""
    await visit.api.change("DELETE", f"{api_path(parameters)}/tags/{parameters['tag']}")
    return visit.go(f"{page_path(parameters)}/deleted", "tag-deleted")


async def restore_tag(visit: Visit, parameters: Parameters) -> Response:
    """Point a deleted tag to where it pointed."""
    await visit.api.post(f"{api_path(parameters)}/tags/{parameters['tag']}/restore")
    return visit.go(f"{page_path(parameters)}/tags/{parameters['tag']}", "tag-restored")


ROUTES: Final = [
    Route("GET", _TAGS, list_tags),
    Route("POST", _TAGS, put_tag),
    Route("GET", _TAG, show_tag),
    Route("POST", _TAG, put_tag),
    Route("POST", f"{_TAG}/delete", delete_tag),
    Route("POST", f"{_TAG}/restore", restore_tag),
]
