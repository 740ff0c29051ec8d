"""Ages, pulls and the first hour; `tests.property.test_lifecycle_selection` has the rest."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.property.lifecycle_oracle import DAY, HOUR, Image
from tests.property.lifecycle_selections import compiled, selected
from tests.property.lifecycle_worlds import NOW

OLD: Final = NOW - 30 * DAY

UNTAGGED: Final = {"priority": 1, "selector": "untagged", "older_than_days": 7}
ANY: Final = {"priority": 9, "selector": "any", "older_than_days": 7}


def taken(images: list[Image], *rules: dict[str, Any]) -> dict[str, int]:
    """Return what goes, in order, and the priorities of the rules."""
    policy = compiled(rules)
    found = selected(images, policy).expired
    return {
        name: policy.rules[why.rule].priority for name, why in found.items() if why.rule is not None
    }


@pytest.mark.parametrize(
    ("image", "goes"),
    [
        (Image("i", NOW - 7 * DAY), False),
        (Image("i", NOW - 7 * DAY - 1), True),
        (Image("i", OLD, untagged_at=NOW - 6 * DAY), False),
        (Image("i", OLD, untagged_at=NOW - 8 * DAY), True),
        (Image("i", NOW - DAY, untagged_at=OLD), False),
        (Image("i", OLD, restored_at=NOW - 7 * DAY), False),
        (Image("i", OLD, restored_at=NOW - 7 * DAY - 1), True),
        (Image("i", OLD, tags=(("v", OLD),), restored_at=NOW - DAY), False),
        (Image("i", NOW - DAY, restored_at=OLD), False),
        (Image("i", OLD, tags=(("v", OLD),)), True),
        (Image("i", OLD, tags=(("v", NOW - DAY),)), False),
        (Image("i", OLD, tags=(("v", OLD), ("w", NOW - DAY))), False),
        (Image("i", OLD, last_pulled_at=NOW), True),
        (Image("i", OLD, is_pinned=True), False),
    ],
)
def test_age(image: Image, *, goes: bool) -> None:
    assert taken([image], ANY) == ({"i": 9} if goes else {})


@pytest.mark.parametrize(
    ("image", "goes"),
    [
        (Image("i", OLD), True),
        (Image("i", NOW - DAY), False),
        (Image("i", OLD, last_pulled_at=NOW - 7 * DAY), False),
        (Image("i", OLD, last_pulled_at=NOW - 7 * DAY - 1), True),
        (Image("i", OLD, tags=(("v", NOW - DAY),), last_pulled_at=OLD), False),
        (Image("i", OLD, restored_at=NOW - DAY, last_pulled_at=OLD), False),
    ],
)
def test_not_pulled(image: Image, *, goes: bool) -> None:
    rule = {"priority": 3, "selector": "any", "not_pulled_for_days": 7}
    assert taken([image], rule) == ({"i": 3} if goes else {})


def test_what_was_pushed_within_the_hour_stays_and_counts() -> None:
    rule = {"priority": 1, "selector": "any", "keep_last": 1}
    images = [Image("a", NOW - HOUR), Image("b", NOW - HOUR + 1), Image("c", NOW)]
    assert taken(images, rule) == {"a": 1}


def test_what_was_restored_within_the_hour_stays_but_is_no_newer() -> None:
    rule = {"priority": 1, "selector": "any", "keep_last": 1}
    images = [Image("a", OLD, restored_at=NOW - HOUR + 1), Image("b", OLD + 1)]
    assert taken(images, rule) == {}
    images[0] = Image("a", OLD, restored_at=NOW - HOUR)
    assert taken(images, rule) == {"a": 1}


def test_images_that_hold_each_other_stay() -> None:
    about = Image("about", OLD, subject="child", children=("child",))
    assert taken([about, Image("child", OLD)], ANY) == {}
