"""What an account decides for all its repositories."""

from __future__ import annotations

import re
from typing import Final

from registry.console.control_plane import Refused
from registry.console.messages import Response
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit

PATH: Final = "/console/settings"
_API: Final = "/v1/registry-settings"
_DAYS: Final = "undelete_days"
_PULLERS: Final = "uncounted_pullers"
_MOST_DAYS: Final = 90
_NO_DAYS: Final = f"The days are a whole number, {_MOST_DAYS} at the most."
_ITEM: Final = re.compile(rf"{_PULLERS}\[([0-9]+)\]")


async def show_settings(visit: Visit, _: Parameters) -> Response:
    """Show the settings."""
    return await _page(visit)


async def save_settings(visit: Visit, _: Parameters) -> Response:
    """Change the settings."""
    form = visit.request.form
    written = form.get(_DAYS, "").strip()
    lines = form.get(_PULLERS, "").splitlines()
    patterns = [line.strip() for line in lines if line.strip()]
    if not (written.isascii() and written.isdigit() and len(written) <= 4):
        return await _page(visit, 400, _DAYS, _NO_DAYS)
    changes = {_DAYS: int(written), _PULLERS: patterns}
    try:
        await visit.api.change("PATCH", _API, changes)
    except Refused as error:
        if error.status != 400:
            raise
        return await _page(visit, 400, *complaint_of(error, patterns))
    return visit.go(PATH, "settings-saved")


def complaint_of(error: Refused, patterns: list[str]) -> tuple[str, str]:
    """Return the field of the form that a refusal is about, and what is wrong with it.

    One of many patterns is named by what it says, as a form has no indexes.
    """
    path = str(error.params.get("field", ""))
    if path == _DAYS:
        return _DAYS, _NO_DAYS
    words = error.message.removeprefix(f"{path}: ")
    item = _ITEM.fullmatch(path)
    if item is not None and int(item[1]) < len(patterns):
        return _PULLERS, f"{patterns[int(item[1])][:128]}: {words}"
    return path, f"{words[:1].upper()}{words[1:]}."


async def _page(visit: Visit, status: int = 200, field: str = "", complaint: str = "") -> Response:
    settings = (await visit.api.get(_API))["registry_settings"]
    form = visit.request.form
    return visit.page(
        "settings.html",
        status,
        settings=settings,
        days=form.get(_DAYS, settings[_DAYS]),
        most_days=_MOST_DAYS,
        pullers=form.get(_PULLERS, "\n".join(settings[_PULLERS])),
        field=field,
        complaint=complaint,
    )


ROUTES: Final = [
    Route("GET", PATH, show_settings),
    Route("POST", PATH, save_settings),
]
