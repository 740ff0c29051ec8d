"""Lifecycle policies: written by hand or by a few numbers, and tried before they are trusted."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from cloudcore.errors import InvalidInput
from registry.console.control_plane import Refused
from registry.console.messages import Response
from registry.console.of_repository import (
    PATH,
    api_path,
    page_path,
    read_repository,
    unless_refused,
)
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit

_PATH: Final = f"{PATH}/lifecycle"
_SHOWN: Final = 100

EXAMPLE: Final = [
    {"priority": 1, "action": "keep", "selector": "tagged", "tag_prefixes": ["release-"]},
    {"priority": 10, "selector": "untagged", "older_than_days": 14},
    {"priority": 20, "selector": "any", "keep_last": 50},
]

_UNSAID: Final[dict[str, Any]] = dict.fromkeys(
    (
        "description",
        "tag_prefixes",
        "tag_patterns",
        "older_than_days",
        "not_pulled_for_days",
        "keep_last",
    )
) | {"action": "expire"}


async def show_policy(visit: Visit, parameters: Parameters) -> Response:
    """Show the policy and what it took."""
    return await _page(visit, parameters)


async def preview(visit: Visit, parameters: Parameters) -> Response:
    """Show what rules would take, without deleting anything."""
    written, rules, complaint = _rules(visit)
    if complaint:
        return await _page(visit, parameters, 400, written=written, complaint=complaint)
    path = f"{api_path(parameters)}/lifecycle-policy/preview"
    try:
        found = await visit.api.post(path, {"rules": rules}, limit=_SHOWN)
    except Refused as error:
        return await _told(visit, parameters, written, error)
    by_priority = {rule["priority"]: _UNSAID | rule for rule in rules}
    return await _page(visit, parameters, written=written, found=found, by_priority=by_priority)


async def save_policy(visit: Visit, parameters: Parameters) -> Response:
    """Give the repository this policy."""
    written, rules, complaint = _rules(visit)
    if complaint:
        return await _page(visit, parameters, 400, written=written, complaint=complaint)
    try:
        await visit.api.change("PUT", f"{api_path(parameters)}/lifecycle-policy", {"rules": rules})
    except Refused as error:
        return await _told(visit, parameters, written, error)
    return visit.go(f"{page_path(parameters)}/lifecycle", "policy-saved")


async def delete_policy(visit: Visit, parameters: Parameters) -> Response:
    """Take the policy away."""
    await visit.api.change("DELETE", f"{api_path(parameters)}/lifecycle-policy")
    return visit.go(f"{page_path(parameters)}/lifecycle", "policy-deleted")


async def start_run(visit: Visit, parameters: Parameters) -> Response:
    """Run the policy now."""
    await visit.api.post(f"{api_path(parameters)}/lifecycle-policy/runs")
    return visit.go(f"{page_path(parameters)}/lifecycle", "run-started")


async def leave_preview(visit: Visit, parameters: Parameters) -> Response:
    """Lead whoever comes to a preview by its address to where one is made."""
    return visit.go(f"{page_path(parameters)}/lifecycle")


async def _told(visit: Visit, parameters: Parameters, written: str, error: Refused) -> Response:
    """Show what is wrong with rules beside them; other refusals have a page of their own."""
    if error.status != 400:
        raise error
    return await _page(visit, parameters, 400, written=written, complaint=error.message)


async def _page(
    visit: Visit,
    parameters: Parameters,
    status: int = 200,
    *,
    written: str | None = None,
    found: dict[str, Any] | None = None,
    by_priority: dict[int, Any] | None = None,
    complaint: str = "",
) -> Response:
    path = f"{api_path(parameters)}/lifecycle-policy"
    repository = await read_repository(visit, parameters)
    try:
        policy = (await visit.api.get(path))["lifecycle_policy"]
    except Refused as error:
        if error.status not in (403, 404):
            raise
        policy, is_hidden = None, error.status == 403
    else:
        is_hidden = False
    runs = await unless_refused(visit.api.get(f"{path}/runs", limit=10))
    return visit.page(
        "lifecycle.html",
        status,
        repository=repository,
        policy=policy,
        is_hidden=is_hidden,
        written=written
        or _written([_shortened(rule) for rule in policy["rules"]] if policy else EXAMPLE),
        runs=runs["runs"] if runs else [],
        preview=found,
        by_priority=by_priority or {},
        complaint=complaint,
        untagged_days=visit.request.form.get("untagged_days", "14"),
        keep_last=visit.request.form.get("keep_last", "50"),
    )


def _rules(visit: Visit) -> tuple[str, list[dict[str, Any]], str]:
    """Return the rules of a form as they were written, as they are, and what is wrong with them."""
    form = visit.request.form
    if form.get("by") == "numbers":
        try:
            rules = _by_numbers(form.get("untagged_days", ""), form.get("keep_last", ""))
        except InvalidInput as error:
            return "", [], error.message
        return _written(rules), rules, ""
    written = form.get("rules", "")
    try:
        parsed = msgspec.json.decode(written, type=list[dict[str, Any]])
    except (ValueError, RecursionError) as error:
        return written, [], f"The rules are no list of JSON objects: {error}"
    return written, parsed, ""


def _by_numbers(untagged_days: str, keep_last: str) -> list[dict[str, Any]]:
    """Return the rules that two numbers stand for; one left out stands for none.

    Raises:
        InvalidInput: they are no numbers, or both are left out.

    """
    rules: list[dict[str, Any]] = []
    if untagged_days.strip():
        days = _number(untagged_days, "days")
        condition = {"older_than_days": days} if days else {}
        rules.append({"priority": 1, "selector": "untagged", **condition})
    if keep_last.strip():
        last = _number(keep_last, "images to keep")
        rules.append({"priority": 2, "selector": "tagged", "keep_last": last})
    if not rules:
        raise InvalidInput("Give a number of days, of images, or both.")
    return rules


def _number(text: str, what: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 5:
        raise InvalidInput(f"The number of {what} is a whole number.")
    return int(text)


def _shortened(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule without what it does not say."""
    return {name: value for name, value in rule.items() if value not in (None, [])}


def _written(rules: object) -> str:
    return msgspec.json.format(msgspec.json.encode(rules), indent=2).decode()


ROUTES: Final = [
    Route("GET", _PATH, show_policy),
    Route("POST", f"{_PATH}/preview", preview),
    Route("GET", f"{_PATH}/preview", leave_preview),
    Route("POST", _PATH, save_policy),
    Route("POST", f"{_PATH}/delete", delete_policy),
    Route("POST", f"{_PATH}/run", start_run),
]
