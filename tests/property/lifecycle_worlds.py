"""Repositories and rules made at random, small enough that everything meets everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st

from tests.property.lifecycle_oracle import DAY, HOUR, Image, Rule

NOW: Final = 1_750_000_000 * 1_000_000
TAGS: Final = ("v1", "v2", "v10", "ci-1", "ci-2", "latest")
PREFIXES: Final = ("v", "v1", "ci-", "nothing")
PATTERNS: Final = ("v*", "*1*", "c*-*2", "latest", "*")

# Either side of the hour that is spared, and of days that the rules name.
_ages = st.sampled_from([9 * DAY, 3 * DAY + 1, 2 * DAY, DAY + 1, DAY, HOUR, HOUR - 1, 0])
_days = st.integers(1, 3)


def _one_in(count: int) -> st.SearchStrategy[bool]:
    return st.integers(1, count).map(lambda drawn: drawn == count)


@st.composite
def repositories(draw: st.DrawFn, most: int = 9) -> list[Image]:
    """Draw a repository: indexes of earlier images, subjects of any, tags on one image each."""
    count = draw(st.integers(0, most))
    names = [f"image-{number}" for number in range(count)]
    homes = {tag: draw(st.sampled_from([None, *names])) for tag in TAGS}
    images = []
    for number, name in enumerate(names):
        pushed_at = NOW - draw(_ages) - draw(st.integers(0, 3)) * DAY
        others = [other for other in names if other != name]
        is_index = number > 0 and draw(_one_in(4))
        children = draw(st.lists(st.sampled_from(names[:number]), max_size=3)) if is_index else []
        has_subject = draw(_one_in(4))
        moved = {tag: NOW - draw(_ages) for tag, home in homes.items() if home == name}
        images.append(
            Image(
                name,
                pushed_at,
                tags=tuple(moved.items()),
                untagged_at=NOW - draw(_ages) if not moved and draw(_one_in(4)) else None,
                restored_at=NOW - draw(_ages) if draw(_one_in(4)) else None,
                last_pulled_at=NOW - draw(_ages) if draw(_one_in(3)) else None,
                children=tuple(dict.fromkeys(children)),
                subject=draw(st.sampled_from([*others, "absent"])) if has_subject else None,
                is_pinned=draw(_one_in(9)),
            )
        )
    return draw(_with_children_about_their_index(images)) if draw(_one_in(2)) else images


@st.composite
def _with_children_about_their_index(draw: st.DrawFn, images: list[Image]) -> list[Image]:
    """Let children of an old index be about it too, as after a tag ``sha256-<its digest>``."""
    *others, last = images or [Image("image-0", NOW)]
    if not others:
        return images
    names = [each.name for each in others]
    children = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    attached = draw(st.sets(st.sampled_from(children), min_size=1))
    index = Image(last.name, NOW - 9 * DAY, children=tuple(children))
    return [
        replace(each, subject=index.name if each.name in attached else each.subject)
        for each in others
    ] + [index]


@st.composite
def policies(draw: st.DrawFn) -> list[Rule]:
    """Draw the rules of a policy, in any order."""
    count = draw(st.integers(1, 5))
    priorities = sorted(draw(st.sets(st.integers(1, 9), min_size=count, max_size=count)))
    rules = [draw(_rules(priority)) for priority in priorities]
    expiring = [rule for rule in rules if rule["action"] == "expire"]
    for rule in expiring[:-1]:
        if rule["selector"] == "any":
            rule["selector"] = "untagged"
    if draw(st.booleans()):  # so that what no rule before claims or keeps is seen to go
        rules.append({"priority": 10, "action": "expire", "selector": "any", "older_than_days": 1})
        for rule in expiring[-1:]:
            rule["selector"] = "untagged" if rule["selector"] == "any" else rule["selector"]
    if draw(_one_in(3)):  # so that the newest stay, and what is counted twice takes their place
        count = draw(st.integers(2, 3))
        rules.append({"priority": 11, "action": "keep", "selector": "any", "keep_last": count})
    return list(draw(st.permutations(rules)))


@st.composite
def _rules(draw: st.DrawFn, priority: int) -> dict[str, Any]:
    action = draw(st.sampled_from(["expire", "expire", "keep"]))
    selector = draw(st.sampled_from(["any", "untagged", "tagged"]))
    rule: dict[str, Any] = {"priority": priority, "action": action, "selector": selector}
    if selector == "tagged":
        rule["tag_prefixes"] = draw(st.lists(st.sampled_from(PREFIXES), max_size=2))
        rule["tag_patterns"] = draw(st.lists(st.sampled_from(PATTERNS), max_size=2))
    conditions: list[str | None] = ["older_than_days", "not_pulled_for_days", "keep_last"]
    if selector == "untagged":
        conditions.append(None)
    condition = draw(st.sampled_from(conditions if action == "expire" else ["keep_last", None]))
    if condition is not None:
        rule[condition] = draw(_days)
    return rule
