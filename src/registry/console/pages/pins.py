"""Pins of images, which keep them from lifecycle rules."""

from __future__ import annotations

from typing import Final

from litestar import post

from cloudcore.clock import MICROSECONDS
from cloudcore.wire import rfc3339
from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.images import image_page
from registry.console.pages.repository_paths import api_path, path_of
from registry.console.paths import IMAGE

_DAY: Final = 24 * 3600 * MICROSECONDS
_MOST_DAYS: Final = 3650
_NO_DAYS: Final = f"A pin lasts 1 to {_MOST_DAYS} days, or has no end."
_NO_NAME: Final = "A pin has a name of small letters, digits, '.', '_' and '-'."


@post(f"{IMAGE}/pins")
async def put_pin(page: InjectedPage) -> PageResponse:
    """Pin an image for some days, or until the pin is removed."""
    form = page.form
    days = form.get("days", "").strip()
    if days and not (days.isascii() and days.isdigit() and 1 <= int(days[:5]) <= _MOST_DAYS):
        return await image_page(page, 400, _NO_DAYS)
    end = page.console.sessions.now() + int(days) * _DAY if days else None
    name = form.get("name", "").strip()
    if not name or "/" in name:
        return await image_page(page, 400, _NO_NAME)
    expiry = {"expires_at": None if end is None else rfc3339(end)}
    try:
        await page.api.change("PUT", _pin(page, name), expiry)
    except Refused as error:
        if error.status not in (400, 409):
            raise
        return await image_page(page, error.status, error.sentence)
    return _shown(page, "pinned")


@post(f"{IMAGE}/pins/{{pin:str}}/delete")
async def delete_pin(page: InjectedPage) -> PageResponse:
    """Remove a pin."""
    await page.api.change("DELETE", _pin(page, page.parameters["pin"]))
    return _shown(page, "unpinned")


def _pin(page: PageRequest, name: str) -> str:
    return f"{api_path(page)}/images/{page.parameters['digest']}/pins/{name}"


def _shown(page: PageRequest, said: str) -> PageResponse:
    return page.go(path_of(page).image(page.parameters["digest"]), said)


HANDLERS: Final = (put_pin, delete_pin)
