"""The registry settings of the account."""

from __future__ import annotations

import re
from typing import Final

from litestar import get, post

from registry.console.addresses import SETTINGS
from registry.console.complaints import NO_COMPLAINT, Complaint
from registry.console.complaints import complaint_of as complaint_about
from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.account.keys import FIELD, read_encryption_card, save_encryption_card

_API: Final = "/v1/registry-settings"
_DAYS: Final = "undelete_days"
_PULLERS: Final = "uncounted_pullers"
_KEYS: Final = "access_key_login"
_MOST_DAYS: Final = 90
_NO_DAYS: Final = f"The days are a whole number, {_MOST_DAYS} at the most."
_ITEM: Final = re.compile(rf"{_PULLERS}\[([0-9]+)\]")


@get(SETTINGS)
async def show_settings(page: InjectedPage) -> PageResponse:
    """Show the settings."""
    return await _page(page)


@post(SETTINGS)
async def save_settings(page: InjectedPage) -> PageResponse:
    """Change the settings."""
    form = page.form
    written = form.get(_DAYS, "").strip()
    lines = form.get(_PULLERS, "").splitlines()
    patterns = [line.strip() for line in lines if line.strip()]
    if not (written.isascii() and written.isdigit() and len(written) <= 4):
        return await _page(page, 400, _DAYS, _NO_DAYS)
    changes = {_DAYS: int(written), _PULLERS: patterns, _KEYS: _KEYS in form}
    try:
        await page.api.change("PATCH", _API, changes)
    except Refused as error:
        if error.status != 400:
            raise
        return await _page(page, 400, *complaint_of(error, patterns))
    return page.go(SETTINGS, "The settings were saved.")


@post(f"{SETTINGS}/encryption")
async def save_encryption(page: InjectedPage) -> PageResponse:
    """Bind the repositories without a key of their own to a key, or to none."""
    try:
        await save_encryption_card(page, "/v1")
    except Refused as error:
        complaint = complaint_about(error)
        return await _page(page, complaint.status, card_complaint=complaint)
    return page.go(SETTINGS, "Saved. It applies to what is pushed from now on.")


def complaint_of(error: Refused, patterns: list[str]) -> tuple[str, str]:
    """Return the refused field of the form, and the reason as a sentence.

    The sentence quotes a refused pattern, since a form shows no indexes.
    """
    path = str(error.params.get("field", ""))
    if path == _DAYS:
        return _DAYS, _NO_DAYS
    words = error.message.removeprefix(f"{path}: ")
    item = _ITEM.fullmatch(path)
    if item is not None and int(item[1]) < len(patterns):
        return _PULLERS, f"{patterns[int(item[1])][:128]}: {words}"
    return path, f"{words[:1].upper()}{words[1:]}."


async def _page(
    page: PageRequest,
    status: int = 200,
    field: str = "",
    complaint: str = "",
    *,
    card_complaint: Complaint = NO_COMPLAINT,
) -> PageResponse:
    settings = (await page.api.get(_API))["registry_settings"]
    form = {} if FIELD in page.form else page.form
    return page.show(
        "settings.html",
        status,
        settings=settings,
        days=form.get(_DAYS, settings[_DAYS]),
        most_days=_MOST_DAYS,
        pullers=form.get(_PULLERS, "\n".join(settings[_PULLERS])),
        lets_keys_log_in=_KEYS in form if form else settings[_KEYS],
        field=field,
        complaint=complaint,
        encryption=await read_encryption_card(page, "/v1", card_complaint),
    )
