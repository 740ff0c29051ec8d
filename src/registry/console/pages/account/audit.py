"""The audit log, filtered by a form that works without script.

The role reads the account's log; a person reads the logs of organizations they own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from litestar import get

from registry.console.addresses import AUDIT, PEOPLE
from registry.console.admission import Requires
from registry.console.control_plane import ControlPlaneClient, Refused, unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_FIELDS: Final = ("who", "action", "resource", "outcome", "since", "until")


@get(AUDIT, opt={"requires": Requires.PERSON_IN_ROLE})
async def show_audit_log(page: InjectedPage) -> PageResponse:
    """Show the account's events that match the form, the newest first."""
    return await _show(page, page.api)


@get(f"{PEOPLE}/{{organization:str}}/audit", opt={"requires": Requires.PERSON})
async def show_organization_log(page: InjectedPage) -> PageResponse:
    """Show an organization's events: its people and their sign-ins, for its owners."""
    return await _show(page, page.person, page.parameters["organization"])


async def _show(
    page: PageRequest, api: ControlPlaneClient, organization_id: str = ""
) -> PageResponse:
    asked = {name: page.query.get(name, "").strip() for name in _FIELDS}
    wanted = {
        **asked,
        "organization_id": organization_id,
        "since": _midnight(asked["since"]),
        "until": _midnight(asked["until"], days=1),
    }
    refusal, events, older = "", [], ""
    try:
        found = await api.get("/v1/audit-events", limit=50, marker=page.marker, **wanted)
    except Refused as error:
        if error.status != 400:
            raise
        refusal = error.sentence
    else:
        events = found["events"]
        if found["meta"]["has_more"]:
            given = {name: text for name, text in asked.items() if text}
            older = urlencode({**given, "marker": found["meta"]["marker"]})
    return page.show(
        "audit.html",
        400 if refusal else 200,
        asked=asked,
        refusal=refusal,
        events=events,
        older=older,
        organization_id=organization_id,
        owned=await organizations_of(page, "owner"),
    )


async def organizations_of(page: PageRequest, *roles: str) -> list[dict[str, Any]]:
    """Return the person's organizations with one of these roles, except the personal one."""
    found = await unless_refused(page.person.get("/v1/organizations", limit=200))
    every = [] if found is None else found["organizations"]
    return [each for each in every if each["role"] in roles and not each["is_personal"]]


def _midnight(date: str, *, days: int = 0) -> str:
    """Return midnight UTC of a date plus `days`; return other text unchanged."""
    try:
        day = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=days)
    except (ValueError, OverflowError):  # `/v1` reports what is wrong
        return date
    return day.isoformat()
