"""Search through the names of repositories and tags of the account."""

from __future__ import annotations

from typing import Any, Final

from litestar import get

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageResponse

_PAGE: Final = 100


@get("/console/search")
async def search(page: InjectedPage) -> PageResponse:
    """Show the repositories and tags whose names contain the text of the head's field."""
    text = page.query.get("text", "").strip()
    found: dict[str, Any] | None = None
    complaint = ""
    if text:
        try:
            found = await page.api.get(
                "/v1/repositories/search",
                text=text,
                marker=page.query.get("marker"),
                limit=_PAGE,
            )
        except Refused as error:
            if error.status not in (400, 403):
                raise
            complaint = error.sentence
    return page.show("search.html", text=text, found=found, complaint=complaint)


HANDLERS: Final = (search,)
