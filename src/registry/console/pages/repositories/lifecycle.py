"""Lifecycle policies: write them rule by rule or as JSON; preview, save and run them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from litestar import get, post

from cloudcore.commands.records import indented
from cloudcore.errors import InvalidInput
from cloudcore.resource_names import parse_uuid
from registry.console.addresses import REPOSITORY
from registry.console.browser_request import is_whole_number
from registry.console.control_plane import Refused, unless_refused
from registry.console.form_refusals import (
    DELETED_TEXT,
    NO_REFUSAL,
    OUTDATED,
    FormPage,
    FormRefusal,
    is_outdated,
)
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repositories.repositories import api_path, path_of, read_repository

CONDITIONS: Final[Mapping[str, str]] = {
    "older_than_days": "older than … days",
    "not_pulled_for_days": "not pulled for … days",
    "keep_last": "the newest … stay",
}
"""Texts of the conditions that a rule may have; it has one at most."""

SUGGESTED: Final[Sequence[Mapping[str, Any]]] = (
    {"priority": 10, "selector": "untagged", "older_than_days": 14},
    {"priority": 20, "selector": "tagged", "keep_last": 50},
)
"""The rules that the form shows for a repository without a policy."""

_ROW: Final = re.compile(r"selector-([0-9]{1,3})")
_SEPARATORS: Final = re.compile(r"[,\s]+")


class RuleRow(NamedTuple):
    """The fields of one rule, as text."""

    priority: str = ""
    action: str = "expire"
    selector: str = ""
    """Empty: there is no rule in this row."""
    tags: str = ""
    """Prefixes and patterns of tags; ``*`` stands for any characters."""
    condition: str = ""
    number: str = ""
    description: str = ""


def row_of(rule: Mapping[str, Any]) -> RuleRow:
    """Convert a rule to a form row; null and empty fields may be missing."""
    condition = next((name for name in CONDITIONS if rule.get(name) is not None), "")
    tags = [f"{prefix}*" for prefix in rule.get("tag_prefixes") or []]
    tags += rule.get("tag_patterns") or []
    return RuleRow(
        priority=str(rule.get("priority", "")),
        action=rule.get("action") or "expire",
        selector=str(rule.get("selector", "")),
        tags=", ".join(tags),
        condition=condition,
        number=str(rule[condition]) if condition else "",
        description=rule.get("description") or "",
    )


def rows_of(form: Mapping[str, str]) -> list[RuleRow]:
    """Return the form's rows that have a rule, except rows marked for removal."""
    numbers = sorted(int(found[1]) for name in form if (found := _ROW.fullmatch(name)))
    rows = [
        RuleRow(*(form.get(f"{name}-{number}", "").strip() for name in RuleRow._fields))
        for number in numbers
        if f"remove-{number}" not in form
    ]
    return [row for row in rows if row.selector]


def rule_of(row: RuleRow) -> dict[str, Any]:
    """Convert a form row to a rule; raise `InvalidInput` for a malformed or superfluous number."""
    rule: dict[str, Any] = {
        "priority": _number(row.priority, "the priority of each rule"),
        "selector": row.selector,
    }
    if row.action not in ("", "expire"):
        rule["action"] = row.action
    entries = [entry for entry in _SEPARATORS.split(row.tags) if entry]
    prefixes = [entry[:-1] for entry in entries if _is_prefix(entry)]
    patterns = [entry for entry in entries if not _is_prefix(entry)]
    rule |= {"tag_prefixes": prefixes} if prefixes else {}
    rule |= {"tag_patterns": patterns} if patterns else {}
    if row.condition:
        what = f"the number in rule {row.priority}, {CONDITIONS.get(row.condition, 'condition')},"
        rule[row.condition] = _number(row.number, what)
    elif row.number:
        raise InvalidInput(f"Rule {row.priority} has a number, but no condition that needs it.")
    if row.description:
        rule["description"] = row.description
    return rule


def are_same(some: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if two policies have the same rules, in any order."""
    return _compared(some) == _compared(others)


def _compared(rules: Sequence[Mapping[str, Any]]) -> list[tuple[RuleRow, list[str]]]:
    rows = [row_of(rule) for rule in rules]
    return sorted((row._replace(tags=""), sorted(row.tags.split(", "))) for row in rows)


def _is_prefix(entry: str) -> bool:
    return len(entry) > 1 and entry.endswith("*") and "*" not in entry[:-1]


def _number(text: str, what: str) -> int:
    if not is_whole_number(text, 10):
        raise InvalidInput(f"{what[:1].upper()}{what[1:]} must be a whole number.")
    return int(text)


_PATH: Final = f"{REPOSITORY}/lifecycle"
_SHOWN: Final = 100
_BATCH: Final = 100
_MOST_READ: Final = 5000

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


class Draft(NamedTuple):
    """The rules in a form, as sent."""

    rules: list[dict[str, Any]]
    """The rules; empty if they cannot be read."""
    rows: list[RuleRow]
    """The rules as form rows; empty if they were written as JSON that cannot be read."""
    written: str
    """The rules as JSON: as written, or made from the rows; empty if the rows cannot be read."""
    refusal: str = ""
    """Why the rules cannot be used; empty if they can."""


async def _page(
    page: PageRequest,
    refusal: FormRefusal = NO_REFUSAL,
    *,
    draft: Draft | None = None,
    found: dict[str, Any] | None = None,
    spare: int = 1,
) -> PageResponse:
    """Return the page, with the draft or else the saved policy in the form, and the latest runs.

    `found` is a preview to show; `spare` is the number of empty rows in the form.
    """
    path = f"{api_path(page)}/lifecycle-policy"
    repository = await read_repository(page)
    policy, is_hidden = None, False
    try:
        policy = (await page.api.get(path))["lifecycle_policy"]
    except Refused as error:
        if error.status not in (403, 404):
            raise
        is_hidden = error.status == 403
    runs = await unless_refused(page.api.get(f"{path}/runs", limit=10))
    saved = [_shortened(rule) for rule in policy["rules"]] if policy else []
    revision = "" if is_hidden else str(policy["revision"] if policy else 0)
    if draft is None or (not draft.rows and draft.refusal):
        rules = saved or [dict(rule) for rule in SUGGESTED]
        rows = [row_of(rule) for rule in rules]
        written = draft.written if draft else indented(rules)
    else:
        rules, rows, written = draft.rules, draft.rows, draft.written
    return page.show(
        "lifecycle.html",
        repository=repository,
        policy=policy,
        is_hidden=is_hidden,
        is_saved=bool(saved) and are_same(rules, saved),
        rows=rows + [RuleRow()] * spare,
        conditions=CONDITIONS,
        written=written,
        saved=(indented(saved) if saved else DELETED_TEXT) if refusal.is_outdated else "",
        revision=revision if refusal.is_outdated else page.form.get("revision") or revision,
        runs=runs["runs"] if runs else [],
        preview=found,
        by_priority={rule["priority"]: _UNSAID | rule for rule in rules} if found else {},
        refusal=refusal,
    )


show_policy = FormPage(_PATH, _page).get()


@post(f"{_PATH}/preview")
async def preview(page: InjectedPage) -> PageResponse:
    """Show which images a form's rules would expire; with ``add`` in the form, only add a row."""
    draft = _draft(page)
    if "add" in page.form:
        return await _page(page, draft=draft, spare=2)
    if draft.refusal:
        return await _page(page, FormRefusal(400, draft.refusal), draft=draft)
    path = f"{api_path(page)}/lifecycle-policy/preview"
    try:
        found = await page.api.post(path, {"rules": draft.rules}, limit=_SHOWN)
    except Refused as error:
        return await _show_refused(page, draft, error)
    return await _page(page, draft=draft, found=found)


@post(_PATH)
async def save_policy(page: InjectedPage) -> PageResponse:
    """Save the policy of a form."""
    draft = _draft(page)
    if draft.refusal:
        return await _page(page, FormRefusal(400, draft.refusal), draft=draft)
    path = f"{api_path(page)}/lifecycle-policy"
    try:
        await page.api.change(
            "PUT", path, {"rules": draft.rules}, revision=page.form.get("revision")
        )
    except Refused as error:
        if is_outdated(error):
            return await _page(page, FormRefusal(409, OUTDATED), draft=draft)
        return await _show_refused(page, draft, error)
    return page.go(path_of(page).tab("lifecycle"), "The policy was saved.")


@post(f"{_PATH}/delete")
async def delete_policy(page: InjectedPage) -> PageResponse:
    """Delete the policy."""
    await page.api.change("DELETE", f"{api_path(page)}/lifecycle-policy")
    return page.go(path_of(page).tab("lifecycle"), "The policy was deleted.")


@post(f"{_PATH}/run")
async def start_run(page: InjectedPage) -> PageResponse:
    """Run the saved policy now, if it still has the revision that was previewed."""
    revision = page.form.get("revision", "")
    if not (revision.isascii() and revision.isdigit()):
        raise InvalidInput("preview the policy first, and run it from its preview")
    path = f"{api_path(page)}/lifecycle-policy/runs"
    try:
        await page.api.post(path, revision=revision)
    except Refused as error:
        if error.status != 409:
            raise
        return await _page(page, FormRefusal(409, error.sentence))
    return page.go(path_of(page).tab("lifecycle"), "A run has begun.")


@post(f"{_PATH}/restore")
async def restore_run(page: InjectedPage) -> PageResponse:
    """Show the images that a run has deleted; with ``confirmed`` in the form, restore them."""
    run_id = parse_uuid(page.form.get("run", ""))
    if run_id is None:
        raise InvalidInput("choose a run in the list of runs")
    path = f"{api_path(page)}/images"
    images, is_whole = await _deleted_by(page, path, f":lifecycle-run/{run_id}")
    if "confirmed" not in page.form:
        await page.require("RestoreImage")
        return page.show(
            "run_restored.html",
            repository=await read_repository(page),
            run=run_id,
            images=images[:_SHOWN],
            total=len(images),
            is_whole=is_whole,
            failures=None,
        )
    restored, failures = 0, []
    digests = [image["digest"] for image in reversed(images)]  # the children of indexes first
    while digests:
        outcome = await page.api.post(f"{path}/restore", {"digests": digests[:_BATCH]})
        restored += len(outcome["restored"])
        failures += [each for each in outcome["failures"] if not _is_back(each)]
        digests = digests[_BATCH:]
    if not failures:
        return page.go(path_of(page).base, "The images are back.")
    return page.show(
        "run_restored.html",
        200 if restored else 409,
        repository=await read_repository(page),
        run=run_id,
        images=[],
        total=restored,
        is_whole=is_whole,
        failures=failures,
    )


async def _deleted_by(
    page: PageRequest, path: str, principal: str
) -> tuple[list[dict[str, Any]], bool]:
    """Return the restorable images that a principal deleted, last deleted first.

    The second value is True if these are all: only the last `_MOST_READ` deletions are read.
    """
    found: list[dict[str, Any]] = []
    read = 0
    async for each in page.api.each(f"{path}/deleted", "images"):
        if read == _MOST_READ:
            return found, False
        read += 1
        if (each["deleted_by"] or "").endswith(principal):
            found.append(each)
    return found, True


def _is_back(failure: dict[str, Any]) -> bool:
    """Return True if an image was not restored because its index had already brought it back."""
    return str(failure["message"]).endswith(" is not deleted")


@get(f"{_PATH}/preview")
async def leave_preview(page: InjectedPage) -> PageResponse:
    """Redirect a GET of the preview's address to the form."""
    return page.go(path_of(page).tab("lifecycle"))


async def _show_refused(page: PageRequest, draft: Draft, error: Refused) -> PageResponse:
    """Show the form with the reason why its rules were refused; raise an `error` other than 400."""
    if error.status != 400:
        raise error
    return await _page(page, FormRefusal(400, error.message), draft=draft)


def _draft(page: PageRequest) -> Draft:
    """Return the rules in a form, which may be JSON or rows."""
    form = page.form
    if "rules" not in form:
        rows = rows_of(form)
        try:
            rules = [rule_of(row) for row in rows]
        except InvalidInput as error:
            return Draft([], rows, "", error.message)
        missing = "" if rules else "Write a rule, or delete the policy."
        return Draft(rules, rows, indented(rules), missing)
    written = form["rules"]
    try:
        rules = msgspec.json.decode(written, type=list[dict[str, Any]])
        return Draft(rules, [row_of(rule) for rule in rules], written)
    except (ValueError, TypeError, RecursionError) as error:
        return Draft([], [], written, f"The rules are no list of JSON objects: {error}")


def _shortened(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule without its null and empty fields."""
    return {name: value for name, value in rule.items() if value not in (None, [])}
