"""What lifecycle rules take, told slowly and plainly: rounds of sets, until nothing more goes.

It knows documents of rules and nothing of the product's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

HOUR: Final = 3600 * 1_000_000
DAY: Final = 24 * HOUR

Rule = Mapping[str, Any]


@dataclass(frozen=True)
class Image:
    """An image; moments are in microseconds."""

    name: str
    pushed_at: int
    tags: tuple[tuple[str, int], ...] = ()
    """Each with when it was pointed here."""
    untagged_at: int | None = None
    restored_at: int | None = None
    last_pulled_at: int | None = None
    children: tuple[str, ...] = ()
    subject: str | None = None
    is_pinned: bool = False

    @property
    def arrived_at(self) -> int:
        return max(self.pushed_at, self.restored_at or 0)

    @property
    def renewed_at(self) -> int:
        if self.tags:
            return max(self.arrived_at, *(moved_at for _, moved_at in self.tags))
        return max(self.arrived_at, self.untagged_at or 0)


def expire(images: Iterable[Image], rules: Sequence[Rule], now: int) -> dict[str, int]:
    """Return the names of what goes, and the priority of the rule that takes each."""
    gone: dict[str, int] = {}
    there = {image.name: image for image in images}
    while taken := _round(there, gone, rules, now):
        gone |= taken
        there = {name: image for name, image in there.items() if name not in taken}
    return gone


def kept(
    images: Iterable[Image], gone: Mapping[str, int], rules: Sequence[Rule]
) -> dict[int, list[str]]:
    """Return the names that each keep rule keeps, in order, by its priority."""
    free = _free({image.name: image for image in images if image.name not in gone})
    return {
        rule["priority"]: sorted(image.name for image in _kept_by(rule, free))
        for rule in rules
        if rule.get("action") == "keep"
    }


def _free(there: Mapping[str, Image]) -> set[Image]:
    listed = {child for image in there.values() for child in image.children}
    return {
        image
        for image in there.values()
        if image.name not in listed and image.subject not in there and not image.is_pinned
    }


def _kept_by(rule: Rule, seen: Iterable[Image]) -> set[Image]:
    selected = {image for image in seen if selects(rule, image)}
    return newest(selected, rule["keep_last"]) if "keep_last" in rule else selected


def _round(
    there: Mapping[str, Image], gone: Mapping[str, int], rules: Sequence[Rule], now: int
) -> dict[str, int]:
    seen = _free(there)
    by_priority = sorted(rules, key=lambda rule: rule["priority"])
    left = set(seen)
    for rule in by_priority:
        if rule.get("action") == "keep":
            left -= _kept_by(rule, seen)
    old = {image for image in left if now - image.arrived_at >= HOUR}
    taken = {
        image.name: gone[image.subject]
        for image in old
        if image.subject is not None and image.subject in gone
    }
    left = {image for image in left if image.name not in taken}
    for rule in by_priority:
        if rule.get("action") != "keep":
            claimed = {image for image in left if selects(rule, image)}
            left -= claimed
            due = _due(rule, claimed, now) & old
            taken |= {image.name: rule["priority"] for image in due}
    return taken


def selects(rule: Rule, image: Image) -> bool:
    if rule["selector"] == "untagged":
        return not image.tags
    if rule["selector"] == "any":
        return True
    prefixes, patterns = rule.get("tag_prefixes", []), rule.get("tag_patterns", [])
    return any(
        not (prefixes or patterns)
        or any(tag.startswith(prefix) for prefix in prefixes)
        or any(fnmatchcase(tag, pattern) for pattern in patterns)
        for tag, _ in image.tags
    )


def newest(images: Iterable[Image], count: int) -> set[Image]:
    return set(sorted(images, key=lambda image: (image.pushed_at, image.name))[-count:])


def _due(rule: Rule, claimed: set[Image], now: int) -> set[Image]:
    if "keep_last" in rule:
        return claimed - newest(claimed, rule["keep_last"])
    if "older_than_days" in rule:
        return {i for i in claimed if now - i.renewed_at > rule["older_than_days"] * DAY}
    if "not_pulled_for_days" not in rule:
        return claimed
    span = rule["not_pulled_for_days"] * DAY
    return {i for i in claimed if now - max(i.renewed_at, i.last_pulled_at or 0) > span}
