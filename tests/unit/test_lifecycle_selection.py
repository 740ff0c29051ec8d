"""The selection rule by rule: ages, pulls, the newest, keep, claims, and what hangs together."""

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


def tagged(name: str, pushed_at: int = OLD, *tags: str, **fields: Any) -> Image:  # noqa: ANN401
    return Image(name, pushed_at, tags=tuple((tag, pushed_at) for tag in tags), **fields)


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


def test_the_newest_by_push_stay_whatever_their_tags_did() -> None:
    rule = {"priority": 1, "selector": "any", "keep_last": 2}
    images = [Image(name, OLD + n) for n, name in enumerate("abcd")]
    assert taken(images, rule) == {"a": 1, "b": 1}
    images[0] = Image("a", OLD, tags=(("v", NOW),))
    assert taken(images, rule) == {"a": 1, "b": 1}


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


def test_a_claimed_image_is_invisible_to_later_rules() -> None:
    releases = {"priority": 1, "selector": "tagged", "tag_prefixes": ["v"], "keep_last": 5}
    images = [tagged("kept", OLD, "v1", "ci-1"), tagged("gone", OLD, "ci-2")]
    assert taken(images, releases, ANY) == {"gone": 9}
    assert taken(images, releases | {"priority": 8}, ANY | {"priority": 9}) == {"gone": 9}


def test_claimed_images_do_not_count_as_the_newest_of_later_rules() -> None:
    releases = {"priority": 1, "selector": "tagged", "tag_prefixes": ["v"], "keep_last": 1}
    rest = {"priority": 2, "selector": "any", "keep_last": 1}
    images = [tagged("v", OLD + 9, "v1"), tagged("b", OLD + 1, "b"), tagged("a", OLD, "a")]
    assert taken(images, releases, rest) == {"a": 2}


@pytest.mark.parametrize("priority", [1, 99])
def test_keep_wins_whatever_its_priority(priority: int) -> None:
    keep = {"priority": priority, "selector": "tagged", "action": "keep", "tag_prefixes": ["v"]}
    images = [tagged("v", OLD, "v1"), tagged("x", OLD, "x1")]
    assert taken(images, keep, ANY) == {"x": 9}


def test_what_is_kept_does_not_count_as_the_newest() -> None:
    keep = {"priority": 5, "selector": "tagged", "action": "keep", "tag_prefixes": ["v"]}
    newest = {"priority": 9, "selector": "any", "keep_last": 1}
    images = [tagged("v", OLD + 9, "v1"), tagged("b", OLD + 1, "b"), tagged("a", OLD, "a")]
    assert taken(images, keep, newest) == {"a": 9}


def test_a_keep_rule_may_protect_the_newest_only() -> None:
    keep = {"priority": 1, "selector": "any", "action": "keep", "keep_last": 2}
    images = [Image(name, OLD + n) for n, name in enumerate("abcd")]
    assert taken(images, keep, UNTAGGED | {"priority": 2}) == {"a": 2, "b": 2}
    counts = selected(images, compiled([keep, UNTAGGED | {"priority": 2}])).kept
    assert counts == {0: 2}


def test_children_of_an_index_that_stays_never_go() -> None:
    platforms = [Image("amd64", OLD), Image("arm64", OLD)]
    index = tagged("index", OLD, "v1", children=("amd64", "arm64"))
    nested = tagged("nested", OLD, "v2", children=("index",))
    assert taken([*platforms, index], UNTAGGED) == {}
    plain = Image("index", OLD, children=("amd64", "arm64"))
    assert taken([*platforms, plain, nested], UNTAGGED) == {}
    assert taken([*platforms, tagged("index", NOW, "v1", children=("amd64",))], UNTAGGED) == {
        "arm64": 1
    }


def test_an_index_goes_and_its_children_go_if_a_rule_takes_them() -> None:
    platforms = [Image("amd64", OLD), tagged("arm64", OLD, "arm")]
    index = tagged("index", OLD, "ci-1", children=("amd64", "arm64"))
    ci = {"priority": 2, "selector": "tagged", "tag_prefixes": ["ci-"], "older_than_days": 7}
    assert taken([*platforms, index], ci) == {"index": 2}
    found = taken([*platforms, index], ci, UNTAGGED)
    assert list(found.items()) == [("index", 2), ("amd64", 1)]


def test_a_child_of_two_indexes_stays_with_the_second() -> None:
    child = Image("child", OLD)
    gone = Image("gone", OLD, children=("child",))
    assert list(taken([child, gone], UNTAGGED)) == ["gone", "child"]
    stays = tagged("stays", OLD, "v1", children=("child",))
    assert taken([child, gone, stays], UNTAGGED) == {"gone": 1}


def test_referrers_stay_with_their_subject_and_go_with_it() -> None:
    signature = Image("signature", OLD, subject="image")
    witness = Image("witness", OLD, subject="signature")
    assert taken([tagged("image", OLD, "v1"), signature, witness], UNTAGGED) == {}
    ci = {"priority": 4, "selector": "tagged", "older_than_days": 7}
    images = [tagged("image", OLD, "ci-1"), tagged("other", OLD, "v"), signature, witness]
    found = list(taken(images, ci).items())
    assert sorted(found) == [("image", 4), ("other", 4), ("signature", 4), ("witness", 4)]
    start = found.index(("image", 4))
    assert [name for name, _ in found[start : start + 3]] == ["image", "signature", "witness"]


def test_a_referrer_of_what_goes_may_be_held_by_other_things() -> None:
    ci = {"priority": 4, "selector": "tagged", "tag_prefixes": ["ci-"], "older_than_days": 7}
    image = tagged("image", OLD, "ci-1")
    keep = {"priority": 9, "selector": "tagged", "tag_prefixes": ["v"], "action": "keep"}
    images = [
        image,
        Image("pinned", OLD, subject="image", is_pinned=True),
        Image("young", NOW, subject="image"),
        tagged("kept", OLD, "v1", subject="image"),
        Image("listed", OLD, subject="image"),
        tagged("index", OLD, "x", children=("listed",)),
    ]
    assert taken(images, ci, keep) == {"image": 4}


def test_a_child_about_its_own_index_is_counted_once() -> None:
    keep = {"priority": 1, "selector": "any", "action": "keep", "keep_last": 2}
    images = [
        Image("index", OLD, children=("child",)),
        Image("older", OLD + 2),
        Image("newer", OLD + 3),
        Image("child", OLD + 4, subject="index"),
    ]
    policy = compiled([keep, ANY])
    found = selected(images, policy)
    assert list(found.expired) == ["index", "older"]
    assert sorted(found.newest[0]) == ["child", "newer"]


def test_a_child_about_its_own_index_releases_its_children_once() -> None:
    ci = {"priority": 2, "selector": "tagged", "tag_prefixes": ["ci-"], "older_than_days": 7}
    images = [
        tagged("index", OLD, "ci-1", children=("nested",)),
        Image("nested", OLD, subject="index", children=("platform",)),
        tagged("kept", OLD, "v1", children=("platform",)),
        Image("platform", OLD),
    ]
    assert taken(images, ci, UNTAGGED) == {"index": 2, "nested": 2}


def test_a_referrer_of_nothing_is_an_image_like_any_other() -> None:
    assert taken([Image("orphan", OLD, subject="absent")], UNTAGGED) == {"orphan": 1}


def test_children_and_signatures_do_not_count_as_the_newest() -> None:
    images = [
        tagged("old", OLD, "v1"),
        Image("signature", OLD + 9, subject="new"),
        tagged("new", OLD + 5, "v2", children=("amd64",)),
        Image("amd64", OLD + 4),
    ]
    assert taken(images, {"priority": 1, "selector": "any", "keep_last": 2}) == {}
    assert taken(images, {"priority": 1, "selector": "any", "keep_last": 1}) == {"old": 1}


def test_images_that_hold_each_other_stay() -> None:
    about = Image("about", OLD, subject="child", children=("child",))
    assert taken([about, Image("child", OLD)], ANY) == {}
