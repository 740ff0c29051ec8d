"""Lifecycle policies: write them as JSON or from a few numbers; preview, save and run them."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import get, post

from cloudcore.errors import InvalidInput
from registry.console.control_plane import Refused, unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repository_paths import (
    api_path,
    page_path,
    read_repository,
)
from registry.console.paths import REPOSITORY

_PATH: Final = f"{REPOSITORY}/lifecycle"
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


@get(_PATH)
async def show_policy(page: InjectedPage) -> PageResponse:
    """Show the policy and its latest runs."""
    return await _page(page)


@post(f"{_PATH}/preview")
async def preview(page: InjectedPage) -> PageResponse:
    """Show the images that the rules of a form would expire."""
    written, rules, complaint = _rules(page)
    if complaint:
        return await _page(page, 400, written=written, complaint=complaint)
    path = f"{api_path(page)}/lifecycle-policy/preview"
    try:
        found = await page.api.post(path, {"rules": rules}, limit=_SHOWN)
    except Refused as error:
        return await _told(page, written, error)
    by_priority = {rule["priority"]: _UNSAID | rule for rule in rules}
    return await _page(page, written=written, found=found, by_priority=by_priority)


@post(_PATH)
async def save_policy(page: InjectedPage) -> PageResponse:
    """Save the policy of a form."""
    written, rules, complaint = _rules(page)
    if complaint:
        return await _page(page, 400, written=written, complaint=complaint)
    try:
        await page.api.change("PUT", f"{api_path(page)}/lifecycle-policy", {"rules": rules})
    except Refused as error:
        return await _told(page, written, error)
    return page.go(f"{page_path(page)}/lifecycle", "policy-saved")


@post(f"{_PATH}/delete")
async def delete_policy(page: InjectedPage) -> PageResponse:
    """Delete the policy."""
    await page.api.change("DELETE", f"{api_path(page)}/lifecycle-policy")
    return page.go(f"{page_path(page)}/lifecycle", "policy-deleted")


@post(f"{_PATH}/run")
async def start_run(page: InjectedPage) -> PageResponse:
    """Run the policy now."""
    await page.api.post(f"{api_path(page)}/lifecycle-policy/runs")
    return page.go(f"{page_path(page)}/lifecycle", "run-started")


@get(f"{_PATH}/preview")
async def leave_preview(page: InjectedPage) -> PageResponse:
    """Redirect a GET of the preview's address to the form."""
    return page.go(f"{page_path(page)}/lifecycle")


async def _told(page: PageRequest, written: str, error: Refused) -> PageResponse:
    """Show why rules were refused, beside the form; raise any other error."""
    if error.status != 400:
        raise error
    return await _page(page, 400, written=written, complaint=error.message)


async def _page(
    page: PageRequest,
    status: int = 200,
    *,
    written: str | None = None,
    found: dict[str, Any] | None = None,
    by_priority: dict[int, Any] | None = None,
    complaint: str = "",
) -> PageResponse:
    path = f"{api_path(page)}/lifecycle-policy"
    repository = await read_repository(page)
    try:
        policy = (await page.api.get(path))["lifecycle_policy"]
    except Refused as error:
        if error.status not in (403, 404):
            raise
        policy, is_hidden = None, error.status == 403
    else:
        is_hidden = False
    runs = await unless_refused(page.api.get(f"{path}/runs", limit=10))
    return page.show(
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
        untagged_days=page.form.get("untagged_days", "14"),
        keep_last=page.form.get("keep_last", "50"),
    )


def _rules(page: PageRequest) -> tuple[str, list[dict[str, Any]], str]:
    """Return the rules of a form as text and parsed, and the error in them, or an empty string."""
    form = page.form
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
    """Return a rule for each of the two numbers that are given.

    Raises:
        InvalidInput: one is not a number, or both are missing.

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
    """Return a rule without its null and empty fields."""
    return {name: value for name, value in rule.items() if value not in (None, [])}


def _written(rules: object) -> str:
    return msgspec.json.format(msgspec.json.encode(rules), indent=2).decode()


HANDLERS: Final = (show_policy, preview, leave_preview, save_policy, delete_policy, start_run)
