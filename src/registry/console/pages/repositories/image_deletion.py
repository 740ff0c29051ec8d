"""Delete images: a selection of them, or an index with the children that nothing else needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from litestar import post

from cloudcore.errors import Conflict, InvalidInput
from registry.console.addresses import IMAGE, REPOSITORY
from registry.console.control_plane import Refused, unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repositories.image_rows import ListedImage, row_of
from registry.console.pages.repositories.repositories import (
    api_path,
    path_of,
    read_repository,
    restore_images,
)

REASONS: Final[Mapping[str, str]] = {
    "tagged": "it has a tag",
    "pinned": "it is pinned",
    "listed": "another index lists it",
    "attached": "something is attached to it",
}
"""Texts for the reasons why a child stays."""


async def read_preview(
    page: PageRequest, images_path: str, image: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the preview of an index's deletion, or None if the page does not offer the deletion.

    The page offers it for an index of the caller's account that no other index lists, if one
    request can delete all children.
    """
    if not image["is_index"]:
        return None
    try:
        found = await page.api.get(f"{images_path}/{image['digest']}/deletion-preview")
    except Refused as error:
        if error.status not in (403, 404, 409):
            raise
        return None
    preview: dict[str, Any] = found["deletion"]
    return None if preview["listed_by"] else preview


@post(f"{IMAGE}/delete-with-children")
async def delete_with_children(page: InjectedPage) -> PageResponse:
    """Delete an index and, of the children shown on its page, those that nothing else needs."""
    form = page.form
    named = form.get("digests", "").split()
    if page.parameters["digest"] not in named:
        raise Conflict("what is under the index has changed; go back, reload, and look again")
    outcome = await page.api.post(
        f"{api_path(page)}/images/{page.parameters['digest']}/delete-with-children",
        {"digests": named},
        force="true" if "force" in form else None,
    )
    # Restoring an index also restores the children that were deleted with it.
    undo = path_of(page).image(page.parameters["digest"], "restore")
    return await show_outcome(page, outcome, undo)


async def show_outcome(
    page: PageRequest,
    outcome: Mapping[str, Any],
    undo: str,
    undo_fields: Mapping[str, str] | None = None,
    *,
    may_force: bool = False,
) -> PageResponse:
    """Show which images were deleted, and why others were not; `undo` is the path that restores."""
    return page.show(
        "index_deleted.html",
        200 if outcome["deleted"] else 409,
        repository=await read_repository(page, is_changed=True),
        deleted=outcome["deleted"],
        failures=outcome.get("failures", ()),
        kept=outcome.get("kept", ()),
        may_force=may_force,
        reasons=REASONS,
        undo=undo,
        undo_fields=undo_fields or {},
    )


_PICKED: Final = re.compile(r"pick[.]([a-z0-9]+:[0-9a-f]+)")
_MOST: Final = 25
"""Maximum number of selected images: those of one page of the list."""


class Selected(NamedTuple):
    """A selected image, and what may prevent its deletion."""

    row: ListedImage
    is_pinned: bool
    is_listed: bool
    """True if an index that is not selected lists the image."""

    @property
    def needs_force(self) -> bool:
        """Return True if the image can only be deleted with `force`."""
        return self.is_pinned or self.is_listed

    @property
    def obstacles(self) -> list[str]:
        """Return why the image cannot be deleted without `force`, as texts."""
        texts = ((self.is_pinned, "is pinned"), (self.is_listed, "is part of an index"))
        return [text for is_so, text in texts if is_so]


@post(f"{REPOSITORY}/images/delete")
async def delete_selection(page: InjectedPage) -> PageResponse:
    """Preview the deletion of the selected images; with ``confirmed`` in the form, delete them."""
    form = page.form
    if "confirmed" in form:
        return await _delete(page, form.get("digests", "").split(), force="force" in form)
    await page.require("DeleteImage")
    digests = [found[1] for name in form if (found := _PICKED.fullmatch(name))]
    repository = await read_repository(page)
    selected = await _read(page, digests[:_MOST])
    return page.show("image_selection.html", repository=repository, selected=selected)


@post(f"{REPOSITORY}/images/restore")
async def restore_selection(page: InjectedPage) -> PageResponse:
    """Restore the images that a form names."""
    await restore_images(page, page.form.get("digests", "").split())
    return page.go(path_of(page).base, "The images are back.")


async def _read(page: PageRequest, digests: Sequence[str]) -> list[Selected]:
    """Read the images that exist; indexes come first, to be deleted before their children."""
    images: list[Mapping[str, Any]] = []
    for digest in digests:
        path = f"{api_path(page)}/images/{digest}"
        found = await unless_refused(page.api.get(path, include="relations"))
        if found is not None:
            images.append(found["image"])
    images.sort(key=lambda image: not image["is_index"])
    there = {image["digest"] for image in images}
    return [
        Selected(
            row_of(image),
            is_pinned=image["is_pinned"],
            is_listed=not there.issuperset(image["listed_by"]),
        )
        for image in images
    ]


async def _delete(page: PageRequest, digests: Sequence[str], *, force: bool) -> PageResponse:
    if not digests:
        raise InvalidInput("no image is selected; go back and select some")
    path = f"{api_path(page)}/images/batch-delete"
    outcome = await page.api.post(path, {"digests": list(digests)}, force="true" if force else None)
    here = path_of(page)
    undo = here.tab("images/restore")
    deleted = {"digests": " ".join(each["digest"] for each in outcome["deleted"])}
    is_lacking = any("incomplete_indexes" in each for each in outcome["deleted"])
    if not outcome["failures"] and not is_lacking:
        return page.go(
            here.base, "The images were deleted, with their tags.", undo, deleted, "RestoreImage"
        )
    may_force = any(
        {"pins", "parents"} & each.get("params", {}).keys() for each in outcome["failures"]
    )
    return await show_outcome(page, outcome, undo, deleted, may_force=may_force)
