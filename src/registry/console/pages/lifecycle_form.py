"""The form of a lifecycle policy: a row of fields for each rule, read and written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cloudcore.errors import InvalidInput

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
"""The rules in the form of a repository without a policy."""

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
    """Return the row of a rule, whose null and empty fields may be missing."""
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
    """Return the rows of a form that have a rule, but for those that are to be removed."""
    numbers = sorted(int(found[1]) for name in form if (found := _ROW.fullmatch(name)))
    rows = [
        RuleRow(*(form.get(f"{name}-{number}", "").strip() for name in RuleRow._fields))
        for number in numbers
        if f"remove-{number}" not in form
    ]
    return [row for row in rows if row.selector]


def rule_of(row: RuleRow) -> dict[str, Any]:
    """Return the rule of a row.

    Raises:
        InvalidInput: a number is none.

    """
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
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise InvalidInput(f"{what[:1].upper()}{what[1:]} must be a whole number.")
    return int(text)
