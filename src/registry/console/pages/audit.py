"""The audit log: who did what in the account, filtered by a form that works without script."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from litestar import get

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageResponse

_PATH: Final = "/console/audit"
_PAGE: Final = 50
_FIELDS: Final = ("who", "action", "resource", "outcome", "since", "until")


@get(_PATH)
async def show_audit_log(page: InjectedPage) -> PageResponse:
    """Show the events that match the form, the newest first."""
    asked = {name: page.query.get(name, "").strip() for name in _FIELDS}
    wanted = {
        **asked,
        "since": _midnight(asked["since"]),
        "until": _midnight(asked["until"], days=1),
    }
    marker = page.query.get("marker")
    complaint, events, older = "", [], ""
    try:
        found = await page.api.get("/v1/audit-events", limit=_PAGE, marker=marker, **wanted)
    except Refused as error:
        if error.status != 400:
            raise
        complaint = error.sentence
    else:
        events = found["events"]
        if found["meta"]["has_more"]:
            given = {name: text for name, text in asked.items() if text}
            older = urlencode({**given, "marker": found["meta"]["marker"]})
    return page.show(
        "audit.html",
        400 if complaint else 200,
        asked=asked,
        complaint=complaint,
        events=events,
        older=older,
    )


def _midnight(date: str, *, days: int = 0) -> str:
    """Return the beginning of a day in UTC, or of one some `days` later; other text as it is."""
    try:
        day = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=days)
    except (ValueError, OverflowError):  # `/v1` says what is wrong with it
        return date
    return day.isoformat()


HANDLERS: Final = (show_audit_log,)
