"""Create what has a name and a description, from the form `new_named` of the templates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from registry.console.control_plane import Refused
from registry.console.page_request import PageRequest, PageResponse
from registry.console.pages.refusals import Complaint, complaint_of

ShowList = Callable[[PageRequest, Complaint], Awaitable[PageResponse]]


async def create_named(
    page: PageRequest, api: str, noun: str, path: str, said: str, show_list: ShowList
) -> PageResponse:
    """Create something at the collection `api`, and go to its page below `path`.

    `noun` is its name in the answer, `said` the notice. If it is refused, show the list again with
    the complaint.
    """
    form = page.form
    body = {
        "name": form.get("name", "").strip(),
        "description": form.get("description", "").strip(),
    }
    try:
        made = await page.api.post(api, body, once=form.get("once", ""))
    except Refused as error:
        return await show_list(page, complaint_of(error))
    return page.go(f"{path}/{made[noun]['id']}", said)
