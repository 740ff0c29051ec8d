"""Event rules: which topics are told of what happens in the account's repositories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from registry.console import settings
from registry.console.control_plane import Refused
from registry.console.messages import Response
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit
from registry.services import events

_PATH: Final = f"{settings.PATH}/events"
_API: Final = "/v1/event-rules"
_PAGE: Final = 50
_INLINE: Final = (400, 403, 409)
"""Refusals that another try in the same form may avoid."""

EVENT_TYPES: Final[Mapping[str, str]] = {
    events.IMAGE_PUSHED: "An image was pushed",
    events.IMAGE_DELETED: "An image was deleted",
    events.TAG_MOVED: "A tag was created, moved or restored",
    events.TAG_DELETED: "A tag was deleted",
    events.REPOSITORY_CREATED: "A repository was created",
    events.REPOSITORY_DELETED: "A repository was deleted",
    events.LIFECYCLE_COMPLETED: "A run of a lifecycle policy has ended",
}
"""What there is to choose from, in words."""
ALL: Final = "registry.*"


async def list_rules(visit: Visit, _: Parameters) -> Response:
    """Show the rules, the oldest first."""
    return await _page(visit)


async def create_rule(visit: Visit, _: Parameters) -> Response:
    """Let a topic be told of events."""
    form = visit.request.form
    body = {
        "topic": _topic(visit, form.get("topic", "").strip()),
        "event_types": chosen_types(form),
        "repository_prefix": form.get("repository_prefix", "").strip(),
    }
    if not body["event_types"]:
        return await _page(visit, 400, "Choose what the topic is told of.")
    try:
        await visit.api.post(_API, body)
    except Refused as error:
        if error.status not in _INLINE:
            raise
        return await _page(visit, error.status, error.sentence)
    return visit.go(_PATH, "rule-created")


async def delete_rule(visit: Visit, parameters: Parameters) -> Response:
    """Delete a rule."""
    await visit.api.change("DELETE", f"{_API}/{parameters['rule']}")
    return visit.go(_PATH, "rule-deleted")


def chosen_types(form: Mapping[str, str]) -> list[str]:
    """Return the event types whose boxes are ticked; the box of all stands for each of them."""
    if ALL in form:
        return [ALL]
    return [each for each in EVENT_TYPES if each in form]


def _topic(visit: Visit, written: str) -> str:
    """Return the CRN of a topic given by it, or by the name alone."""
    acting = visit.session.acting
    if written.startswith("crn:") or acting is None:
        return written
    region = visit.house.storage.site.region
    return f"crn:notifications:{region}:{acting.account_id}:topic/{written}"


async def _page(visit: Visit, status: int = 200, complaint: str = "") -> Response:
    found = await visit.api.get(_API, marker=visit.request.query.get("marker"), limit=_PAGE)
    return visit.page(
        "event_rules.html",
        status,
        rules=found["event_rules"],
        meta=found["meta"],
        types=EVENT_TYPES,
        all_types=ALL,
        complaint=complaint,
    )


ROUTES: Final = [
    Route("GET", _PATH, list_rules),
    Route("POST", _PATH, create_rule),
    Route("POST", f"{_PATH}/{{rule}}/delete", delete_rule),
]
