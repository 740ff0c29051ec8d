"""The registry settings of the account."""

from __future__ import annotations

import re
from typing import Final

from registry.console.addresses import SETTINGS
from registry.console.browser_request import is_whole_number
from registry.console.control_plane import Refused
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal, WrongInput
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.account.keys import FIELD, read_encryption_card, save_encryption_card

_API: Final = "/v1/registry-settings"
_DAYS: Final = "undelete_days"
_PULLERS: Final = "uncounted_pullers"
_KEYS: Final = "access_key_login"
_MOST_DAYS: Final = 90
_NO_DAYS: Final = f"The days are a whole number, {_MOST_DAYS} at the most."
_ITEM: Final = re.compile(rf"{_PULLERS}\[([0-9]+)\]")


async def _page(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    settings = (await page.api.get(_API))["registry_settings"]
    is_of_key = FIELD in page.form
    form = {} if is_of_key else page.form
    return page.show(
        "settings.html",
        refusal.status,
        settings=settings,
        days=form.get(_DAYS, settings[_DAYS]),
        most_days=_MOST_DAYS,
        pullers=form.get(_PULLERS, "\n".join(settings[_PULLERS])),
        lets_keys_log_in=_KEYS in form if form else settings[_KEYS],
        refusal=NO_REFUSAL if is_of_key else refusal,
        encryption=await read_encryption_card(page, "/v1", refusal),
    )


_SETTINGS: Final = FormPage(SETTINGS, _page)
show_settings = _SETTINGS.get()


@_SETTINGS.form()
async def save_settings(page: InjectedPage) -> PageResponse:
    """Change the settings."""
    written = page.text(_DAYS)
    lines = page.form.get(_PULLERS, "").splitlines()
    patterns = [line.strip() for line in lines if line.strip()]
    if not is_whole_number(written, 4):
        raise WrongInput(_DAYS, _NO_DAYS)
    changes = {_DAYS: int(written), _PULLERS: patterns, _KEYS: _KEYS in page.form}
    try:
        await page.api.change("PATCH", _API, changes)
    except Refused as error:
        if error.status != 400:
            raise
        return await _page(page, settings_refusal(error, patterns))
    return page.go(SETTINGS, "The settings were saved.")


@_SETTINGS.form("/encryption")
async def save_encryption(page: InjectedPage) -> PageResponse:
    """Set the account's default key, or remove it."""
    await save_encryption_card(page, "/v1")
    return page.go(SETTINGS, "Saved. It applies to what is pushed from now on.")


def settings_refusal(error: Refused, patterns: list[str]) -> FormRefusal:
    """Return a refusal with the reason as a sentence.

    The sentence quotes the refused pattern: the index in the error means nothing in the form.
    """
    path = str(error.params.get("field", ""))
    if path == _DAYS:
        return FormRefusal(400, _NO_DAYS, _DAYS)
    words = error.message.removeprefix(f"{path}: ")
    item = _ITEM.fullmatch(path)
    if item is not None and int(item[1]) < len(patterns):
        return FormRefusal(400, f"{patterns[int(item[1])][:128]}: {words}", _PULLERS)
    return FormRefusal(400, f"{words[:1].upper()}{words[1:]}.", path)
