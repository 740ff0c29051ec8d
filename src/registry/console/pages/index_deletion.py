"""Delete an index together with the children that nothing else needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar import post

from cloudcore.errors import Conflict
from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repository_paths import api_path, path_of, read_repository
from registry.console.paths import IMAGE

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
    """Return what would be deleted with an index, or None if the page does not offer that.

    It is offered for an index of the caller's account that no other index lists, if one request can
    delete all its children.
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
    """Delete an index, and those of the children that its page showed that nothing else needs."""
    form = page.form
    named = form.get("digests", "").split()
    if page.parameters["digest"] not in named:
        raise Conflict("what is under the index has changed; go back, reload, and look again")
    outcome = await page.api.post(
        f"{api_path(page)}/images/{page.parameters['digest']}/delete-with-children",
        {"digests": named},
        force="true" if "force" in form else None,
    )
    return page.show(
        "index_deleted.html",
        200 if outcome["deleted"] else 409,
        repository=await read_repository(page, is_changed=True),
        deleted=outcome["deleted"],
        failures=outcome["failures"],
        may_force=False,
        kept=outcome["kept"],
        reasons=REASONS,
        # An index is restored with the children that were deleted.
        undo=path_of(page).image(page.parameters["digest"], "restore"),
        undo_fields={},
    )


HANDLERS: Final = (delete_with_children,)
