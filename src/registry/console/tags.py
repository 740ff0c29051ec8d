"""Tags: where they point, where they pointed before, and moving them."""

from __future__ import annotations

from typing import Final

from registry.console.control_plane import Refused
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
_INLINE: Final = (400, 404, 409, 412)
"""Refusals that another try in the same form may avoid."""
_MOVED: Final = "The tag was moved meanwhile. Look where it points now, and try again."
_NO_TAG: Final = (
    "A tag is 1 to 128 letters, digits, '_', '.' and '-', and begins with neither '.' nor '-'."
)


async def list_tags(visit: Visit, parameters: Parameters) -> Response:
    """Show the tags in byte order."""
    return await _list_page(visit, parameters)


async def _list_page(
    visit: Visit, parameters: Parameters, status: int = 200, complaint: str = ""
) -> Response:
    query = visit.request.query
    prefix = query.get("prefix", "").strip()
    repository = await read_repository(visit, parameters)
    found = await visit.api.get(
        f"{api_path(parameters)}/tags", prefix=prefix, marker=query.get("marker"), limit=_PAGE
    )
    return visit.page(
        "tags.html",
        status,
        repository=repository,
        tags=found["tags"],
        meta=found["meta"],
        prefix=prefix,
        complaint=complaint,
    )


async def show_tag(visit: Visit, parameters: Parameters) -> Response:
    """Show a tag with its history; also one that is no more."""
    return await _tag_page(visit, parameters)


async def _tag_page(
    visit: Visit, parameters: Parameters, status: int = 200, complaint: str = ""
) -> Response:
    path = f"{api_path(parameters)}/tags/{parameters['tag']}"
    repository = await read_repository(visit, parameters)
    history = await visit.api.get(
        f"{path}/history", marker=visit.request.query.get("marker"), limit=_PAGE
    )
    found = await unless_refused(visit.api.get(path))
    return visit.page(
        "tag.html",
        status,
        repository=repository,
        name=parameters["tag"],
        tag=found and found["tag"],
        history=history["history"],
        meta=history["meta"],
        complaint=complaint,
    )


async def put_tag(visit: Visit, parameters: Parameters) -> Response:
    """Point a tag to an image, given by its digest or by another tag of it.

    Where the form says what the tag pointed to, only from there: two who move it must not undo
    each other unseen.
    """
    show = _tag_page if "tag" in parameters else _list_page
    form = visit.request.form
    name = parameters.get("tag") or form.get("tag", "").strip()
    if not is_tag(name):
        return await show(visit, parameters, 400, _NO_TAG)
    path = f"{api_path(parameters)}/tags/{name}"
    was_there = await unless_refused(visit.api.get(path))
    try:
        digest = await _digest(visit, parameters, form.get("target", "").strip())
        await visit.api.change("PUT", path, {"digest": digest}, if_match=form.get("was", ""))
    except Refused as error:
        if error.status not in _INLINE:
            raise
        complaint = _MOVED if error.status == 412 else error.sentence
        return await show(visit, parameters, error.status, complaint)
    return visit.go(
        f"{page_path(parameters)}/tags/{name}", "tag-moved" if was_there else "tag-created"
    )


async def _digest(visit: Visit, parameters: Parameters, target: str) -> str:
    """Return the digest that a form names, or that the tag points to which it names."""
    if not is_tag(target):
        return target
    try:
        found = await visit.api.get(f"{api_path(parameters)}/tags/{target}")
    except Refused as error:
        if error.status != 404:
            raise
        message = f"there is no tag {target} to point to"
        raise Refused(404, error.code, message, error.request_id) from None
    return str(found["tag"]["digest"])


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
