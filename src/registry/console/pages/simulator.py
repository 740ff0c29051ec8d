"""Whether a principal may do something, and which statements say so."""

from __future__ import annotations

import re
from typing import Any, Final

from litestar import get

from registry.console.addresses import SIMULATOR
from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.refusals import NO_COMPLAINT, complaint_of

_ACTIONS: Final = ("registry:PullImage", "registry:PushImage")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_REPOSITORY: Final = re.compile(r"[a-z0-9][a-z0-9._/-]*")
_DECISIONS: Final = {
    "allowed": "Yes",
    "denied": "No, denied",
    "implicitly_denied": "No, nothing allows it",
    "unknown": "Unknown",
}


@get(SIMULATOR)
async def show_simulator(page: InjectedPage) -> PageResponse:
    """Show the form; with a principal in the query, the decisions too. Nothing is changed."""
    asked = {
        "principal": page.query.get("principal", "").strip(),
        "actions": page.query.get("actions", " ".join(_ACTIONS)),
        "resource": page.query.get("resource", "").strip(),
        "source_ip": page.query.get("source_ip", "").strip(),
    }
    complaint, simulation = NO_COMPLAINT, None
    if asked["principal"] and asked["resource"]:
        try:
            answer = await page.api.post("/v1/policy-simulations", _question(page, asked))
            simulation = answer["simulation"]
        except Refused as error:
            complaint = complaint_of(error)
    return page.show(
        "simulator.html",
        complaint.status,
        asked=asked,
        complaint=complaint,
        simulation=simulation,
        decisions=_DECISIONS,
        known_actions=(await page.api.get("/v1/actions"))["actions"],
    )


def _question(page: PageRequest, asked: dict[str, str]) -> dict[str, Any]:
    """Return the body of a simulation."""
    region = page.console.settings.region
    body: dict[str, Any] = {
        "principal": principal_of(asked["principal"], page.acting.account),
        "actions": asked["actions"].replace(",", " ").split(),
        "resource": resource_of(asked["resource"], page.acting.account, region),
    }
    if asked["source_ip"]:
        body["source_ip"] = asked["source_ip"]
    return body


def principal_of(written: str, account: str) -> str:
    """Return the CRN of a principal; a bare name is that of a service account."""
    kind, _, name = written.rpartition("/")
    if kind in ("", "role", "service-account") and _NAME.fullmatch(name):
        return f"crn:iam::{account}:{kind or 'service-account'}/{name}"
    return written


def resource_of(written: str, account: str, region: str) -> str:
    """Return the CRN of a resource; a bare name is that of a repository."""
    if _REPOSITORY.fullmatch(written):
        return f"crn:registry:{region}:{account}:repository/{written}"
    return written
