"""Pins: "this is deployed there", so that no lifecycle rule takes it."""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.wire import rfc3339
from registry.console.control_plane import Refused
from registry.console.images import image_page
from registry.console.messages import Response
from registry.console.of_repository import PATH, api_path, page_path
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit

_IMAGE: Final = f"{PATH}/images/{{digest}}"
_DAY: Final = 24 * 3600 * MICROSECONDS
_MOST_DAYS: Final = 3650
_NO_DAYS: Final = f"A pin lasts 1 to {_MOST_DAYS} days, or has no end."
_NO_NAME: Final = "A pin has a name of small letters, digits, '.', '_' and '-'."


async def put_pin(visit: Visit, parameters: Parameters) -> Response:
    """Pin an image for some days, or until the pin is taken away."""
    form = visit.request.form
    days = form.get("days", "").strip()
    if days and not (days.isascii() and days.isdigit() and 1 <= int(days[:5]) <= _MOST_DAYS):
        return await image_page(visit, parameters, 400, _NO_DAYS)
    end = visit.house.sessions.now() + int(days) * _DAY if days else None
    name = form.get("name", "").strip()
    if not name or "/" in name:
        return await image_page(visit, parameters, 400, _NO_NAME)
    expiry = {"expires_at": None if end is None else rfc3339(end)}
    try:
        await visit.api.change("PUT", _pin(parameters, name), expiry)
    except Refused as error:
        if error.status not in (400, 409):
            raise
        return await image_page(visit, parameters, error.status, error.sentence)
    return _shown(visit, parameters, "pinned")


async def delete_pin(visit: Visit, parameters: Parameters) -> Response:
    """Take a pin away."""
    await visit.api.change("DELETE", _pin(parameters, parameters["pin"]))
    return _shown(visit, parameters, "unpinned")


def _pin(parameters: Parameters, name: str) -> str:
    return f"{api_path(parameters)}/images/{parameters['digest']}/pins/{name}"


def _shown(visit: Visit, parameters: Parameters, said: str) -> Response:
    return visit.go(f"{page_path(parameters)}/images/{parameters['digest']}", said)


ROUTES: Final = [
    Route("POST", f"{_IMAGE}/pins", put_pin),
    Route("POST", f"{_IMAGE}/pins/{{pin}}/delete", delete_pin),
]
