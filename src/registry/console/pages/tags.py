"""Tags: show their images and history; move, delete and restore them."""

from __future__ import annotations

from typing import Final

from litestar import get, post

from registry.console.control_plane import Refused, unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repository_paths import (
    api_path,
    path_of,
    read_repository,
)
from registry.console.paths import REPOSITORY
from registry.oci.reference import is_tag

_TAGS: Final = f"{REPOSITORY}/tags"
_TAG: Final = f"{_TAGS}/{{tag:str}}"
_PAGE: Final = 50
_INLINE: Final = (400, 404, 409, 412)
"""Statuses of errors that are shown beside the form."""
_MOVED: Final = "The tag was moved meanwhile. Look where it points now, and try again."
_NO_TAG: Final = (
    "A tag is 1 to 128 letters, digits, '_', '.' and '-', and begins with neither '.' nor '-'."
)


@get(_TAGS)
async def list_tags(page: InjectedPage) -> PageResponse:
    """Show the tags in byte order."""
    return await _list_page(page)


async def _list_page(page: PageRequest, status: int = 200, complaint: str = "") -> PageResponse:
    query = page.query
    prefix = query.get("prefix", "").strip()
    repository = await read_repository(page)
    found = await page.api.get(
        f"{api_path(page)}/tags", prefix=prefix, marker=query.get("marker"), limit=_PAGE
    )
    return page.show(
        "tags.html",
        status,
        repository=repository,
        tags=found["tags"],
        meta=found["meta"],
        prefix=prefix,
        complaint=complaint,
    )


@get(_TAG)
async def show_tag(page: InjectedPage) -> PageResponse:
    """Show a tag with its history, even if it was deleted."""
    return await _tag_page(page)


async def _tag_page(page: PageRequest, status: int = 200, complaint: str = "") -> PageResponse:
    path = f"{api_path(page)}/tags/{page.parameters['tag']}"
    repository = await read_repository(page)
    history = await page.api.get(f"{path}/history", marker=page.query.get("marker"), limit=_PAGE)
    found = await unless_refused(page.api.get(path))
    return page.show(
        "tag.html",
        status,
        repository=repository,
        name=page.parameters["tag"],
        tag=found and found["tag"],
        history=history["history"],
        meta=history["meta"],
        complaint=complaint,
    )


@post([_TAGS, _TAG])
async def put_tag(page: InjectedPage) -> PageResponse:
    """Point a tag to an image, given by its digest or by another tag.

    If the form has the digest that the page showed for the tag, the tag moves only if it still
    points there, so that nobody unknowingly undoes the change of another person.
    """
    show = _tag_page if "tag" in page.parameters else _list_page
    form = page.form
    name = page.parameters.get("tag") or form.get("tag", "").strip()
    if not is_tag(name):
        return await show(page, 400, _NO_TAG)
    path = f"{api_path(page)}/tags/{name}"
    was_there = await unless_refused(page.api.get(path))
    try:
        digest = await _digest(page, form.get("target", "").strip())
        await page.api.change("PUT", path, {"digest": digest}, if_match=form.get("was", ""))
    except Refused as error:
        if error.status not in _INLINE:
            raise
        complaint = _MOVED if error.status == 412 else error.sentence
        return await show(page, error.status, complaint)
    return page.go(path_of(page).tag(name), "tag-moved" if was_there else "tag-created")


async def _digest(page: PageRequest, target: str) -> str:
    """Return the digest in a form, or that of the tag in it."""
    if not is_tag(target):
        return target
    try:
        found = await page.api.get(f"{api_path(page)}/tags/{target}")
    except Refused as error:
        if error.status != 404:
            raise
        message = f"there is no tag {target} to point to"
        raise Refused(404, error.code, message, error.request_id) from None
    return str(found["tag"]["digest"])


@post(f"{_TAG}/delete")
async def delete_tag(page: InjectedPage) -> PageResponse:
    """Delete a tag; its image stays."""
    tag = page.parameters["tag"]
    await page.api.change("DELETE", f"{api_path(page)}/tags/{tag}")
    here = path_of(page)
    return page.go(here.tab("deleted"), "tag-deleted", here.tag(tag, "restore"))


@post(f"{_TAG}/restore")
async def restore_tag(page: InjectedPage) -> PageResponse:
    """Restore a deleted tag to the image it pointed to."""
    await page.api.post(f"{api_path(page)}/tags/{page.parameters['tag']}/restore")
    return page.go(path_of(page).tag(page.parameters["tag"]), "tag-restored")


HANDLERS: Final = (list_tags, put_tag, show_tag, delete_tag, restore_tag)
