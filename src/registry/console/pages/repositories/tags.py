"""Tags: show their images and history; move, delete and restore them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from litestar import post

from registry.console.addresses import REPOSITORY
from registry.console.browser_request import is_whole_number
from registry.console.control_plane import Refused, unless_refused
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repositories.image_rows import is_attached_tag, natural_key
from registry.console.pages.repositories.repositories import api_path, path_of, read_repository
from registry.errors import DigestInvalid
from registry.oci.digest import Digest
from registry.oci.reference import is_tag

_TAGS: Final = f"{REPOSITORY}/tags"
_TAG: Final = f"{_TAGS}/{{tag:str}}"
_PAGE: Final = 50
_MOST_OF_READ: Final = 200
_MOST_SORTED: Final = 1000
"""Up to this number, all tags are read and sorted; more are shown in byte order, by pages."""
_INLINE: Final = (400, 404, 409, 412)
"""Statuses of errors that are shown beside the form."""
_MOVED: Final = "The tag was moved meanwhile. Look where it points now, and try again."
_NO_IMAGE: Final = "the repository has no such image"
_NO_TAG: Final = (
    "A tag is 1 to 128 letters, digits, '_', '.' and '-', and begins with neither '.' nor '-'."
)


async def _list_page(
    page: PageRequest, refusal: FormRefusal = NO_REFUSAL, *, is_gone: bool = False
) -> PageResponse:
    """Return the page with the tags: sorted by name or time, or in byte order if there are many."""
    query = page.query
    prefix = query.get("prefix", "").strip()
    sort = "recent" if query.get("sort") == "recent" else "name"
    repository = await read_repository(page)
    path, marker = f"{api_path(page)}/tags", page.marker
    limit = _MOST_OF_READ if marker is None else _PAGE
    found = await page.api.get(path, prefix=prefix, marker=marker, limit=limit)
    is_sorted = marker is None and found["meta"]["total"] <= _MOST_SORTED
    if marker is None and not is_sorted:
        found = await page.api.get(path, prefix=prefix, limit=_PAGE)
    tags, meta = found["tags"], found["meta"]
    if is_sorted:
        while meta["has_more"]:
            more = await page.api.get(path, prefix=prefix, marker=meta["marker"], limit=limit)
            tags, meta = tags + more["tags"], more["meta"]
        tags = _sorted(tags, sort)
    own = [tag for tag in tags if "all" in query or not is_attached_tag(tag["name"])]
    folded = len(tags) - len(own)
    if is_sorted:
        own, meta = _page_of(own, query.get("from", ""))
    return page.show(
        "tags.html",
        repository=repository,
        tags=own,
        folded=folded,
        meta=meta,
        prefix=prefix,
        sort=sort if is_sorted else "",
        shows_all="all" in query,
        most_sorted=_MOST_SORTED,
        refusal=refusal,
        is_gone=is_gone,
    )


def _sorted(tags: list[dict[str, str]], sort: str) -> list[dict[str, str]]:
    if sort == "recent":
        return sorted(tags, key=lambda tag: tag["updated_at"], reverse=True)
    return sorted(tags, key=lambda tag: natural_key(tag["name"]))


def _page_of(
    tags: list[dict[str, str]], written: str
) -> tuple[list[dict[str, str]], dict[str, object]]:
    """Return the page of sorted tags that begins at index `written`, and its paging metadata."""
    start = int(written) if is_whole_number(written, 4) else 0
    end = start + _PAGE
    return tags[start:end], {"total": len(tags), "has_more": end < len(tags), "marker": str(end)}


async def _tag_page(
    page: PageRequest, refusal: FormRefusal = NO_REFUSAL, *, is_gone: bool = False
) -> PageResponse:
    """Return the page of a tag with its history, even if it was deleted."""
    path = f"{api_path(page)}/tags/{page.parameters['tag']}"
    repository = await read_repository(page)
    history = await page.api.get(f"{path}/history", marker=page.marker, limit=_PAGE)
    found = await unless_refused(page.api.get(path))
    return page.show(
        "tag.html",
        repository=repository,
        name=page.parameters["tag"],
        tag=found and found["tag"],
        history=history["history"],
        meta=history["meta"],
        refusal=refusal,
        is_gone=is_gone,
    )


list_tags, show_tag = FormPage(_TAGS, _list_page).get(), FormPage(_TAG, _tag_page).get()


@post([_TAGS, _TAG])
async def put_tag(page: InjectedPage) -> PageResponse:
    """Point a tag to an image, named by digest or by another tag; ask before moving a tag.

    If the form has the digest that the page showed for the tag, the tag moves only if it still has
    that digest, so that nobody unknowingly undoes another person's change.
    """
    show = _tag_page if "tag" in page.parameters else _list_page
    form = page.form
    name = page.parameters.get("tag") or page.text("tag")
    if not is_tag(name):
        return await show(page, FormRefusal(400, _NO_TAG))
    path = f"{api_path(page)}/tags/{name}"
    was_there = await unless_refused(page.api.get(path))
    before = was_there["tag"]["digest"] if was_there else ""
    try:
        digest = await _digest(page, page.text("target"))
        if was_there and before != digest and "confirmed" not in form:
            return await _ask(page, name, was_there["tag"], digest)
        await page.api.change("PUT", path, {"digest": digest}, if_match=form.get("was", ""))
    except Refused as error:
        if error.status not in _INLINE:
            raise
        words = _MOVED if error.status == 412 else error.sentence
        is_gone = error.status == 404 and not is_tag(page.text("target"))
        return await show(page, FormRefusal(error.status, words), is_gone=is_gone)
    there = path_of(page).tag(name)
    if not was_there:
        return page.go(there, "The tag was created.")
    back = {"target": before, "was": digest, "confirmed": "yes"}
    return page.go(there, "The tag was moved.", there, back, "PushImage")


async def _ask(page: PageRequest, name: str, tag: Mapping[str, str], digest: str) -> PageResponse:
    """Return the page that asks whether to move a tag.

    Raise `Refused`: 412 if the tag has another digest than the page showed; 400 if `digest` is
    malformed; 404 if the repository has no such image.
    """
    await page.require("PushImage")
    if page.form.get("was", tag["digest"]) != tag["digest"]:
        raise Refused(412, "PRECONDITION_FAILED", _MOVED, page.request_id)
    try:
        target = Digest.parse(digest)
    except DigestInvalid as error:
        raise Refused(400, "INVALID_INPUT", error.message, page.request_id) from None
    if await unless_refused(page.api.get(f"{api_path(page)}/images/{target}")) is None:
        raise Refused(404, "NOT_FOUND", _NO_IMAGE, page.request_id)
    return page.show(
        "tag_move.html", repository=await read_repository(page), name=name, tag=tag, target=digest
    )


async def _digest(page: PageRequest, target: str) -> str:
    """Return the digest of the tag `target`, or raise `Refused`; return other text unchanged."""
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
    undo = here.tag(tag, "restore")
    return page.go(
        here.tab("deleted"),
        "The tag was deleted; its image stays. What can be restored is listed here.",
        undo,
        undo_action="RestoreImage",
    )


@post(f"{_TAG}/restore")
async def restore_tag(page: InjectedPage) -> PageResponse:
    """Restore a deleted tag to the image it pointed to."""
    await page.api.post(f"{api_path(page)}/tags/{page.parameters['tag']}/restore")
    return page.go(path_of(page).tag(page.parameters["tag"]), "The tag is back.")
