"""The selection against an oracle that is slow and plain, on repositories made at random.

``SOAK=20`` in the environment tries twenty times as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloudcore.web.strict_json import convert
from registry.services.lifecycle.rules import CompiledPolicy, LifecycleRule, check_rules, policy_of
from registry.services.lifecycle.selection import Image, Selection, select
from tests.property import lifecycle_oracle as oracle
from tests.property.lifecycle_oracle import Rule
from tests.property.lifecycle_worlds import NOW, policies, repositories
from tests.soak import times

AGE: Final = 30 * oracle.DAY
INDEX: Final = oracle.Image("index", NOW - AGE, (("ci-1", NOW - AGE),), children=("child",))
CHILD: Final = oracle.Image("child", NOW - oracle.DAY, subject="index")
OTHER: Final = oracle.Image("other", NOW - AGE, (("v1", NOW - AGE),), children=("image-3",))
ANY: Final = {"priority": 9, "selector": "any", "older_than_days": 1}
UNTAGGED: Final = ANY | {"priority": 2, "selector": "untagged"}
CI: Final = ANY | {"priority": 1, "selector": "tagged", "tag_prefixes": ["ci-"]}
KEEP: Final = {"priority": 1, "action": "keep", "selector": "any", "keep_last": 2}


def compiled(rules: Sequence[Rule]) -> CompiledPolicy:
    """Return the policy of these rules."""
    return policy_of(check_rules(convert(list(rules), list[LifecycleRule])))


def selected(images: Sequence[oracle.Image], policy: CompiledPolicy, now: int = NOW) -> Selection:
    """Select among images that know nothing of rules, each rule matched as the registry does."""
    names = {image.name for image in images}
    looked_at = []
    for image in images:
        rules = policy.of_any if image.tags else policy.of_untagged
        for tag, _ in image.tags:
            rules |= policy.of_tag(tag)
        looked_at.append(
            Image(
                image.name,
                rules,
                image.pushed_at,
                image.arrived_at,
                image.renewed_at,
                image.last_pulled_at,
                subject=image.subject if image.subject in names else None,
                is_pinned=image.is_pinned,
            )
        )
    return select(policy, looked_at, {image.name: image.children for image in images}, now)


def aged(days: int) -> oracle.Image:
    """Return an image without a tag."""
    return oracle.Image(f"image-{days}", NOW - days * oracle.DAY)


MOVED: Final = replace(aged(30), tags=(("v1", NOW - oracle.DAY),), last_pulled_at=NOW - AGE)
UNPULLED: Final = {"priority": 3, "selector": "any", "not_pulled_for_days": 2}


@settings(max_examples=times(100))
@given(repositories(), policies())
@example([INDEX, *(aged(n) for n in (3, 2)), CHILD], [KEEP, ANY])
@example([MOVED], [UNPULLED])
@example([INDEX, replace(CHILD, children=("image-3",)), aged(3), OTHER], [CI, UNTAGGED])
def test_what_goes_is_what_the_oracle_says(
    images: list[oracle.Image], rules: Sequence[Rule]
) -> None:
    policy = compiled(rules)
    found = selected(images, policy)
    by_rule = {
        name: policy.rules[why.rule].priority
        for name, why in found.expired.items()
        if why.rule is not None
    }
    assert by_rule == oracle.expire(images, rules, NOW)
    assert by_rule.keys() == found.expired.keys()
    numbers = {rule.priority: number for number, rule in enumerate(policy.rules)}
    kept = oracle.kept(images, by_rule, rules)
    for priority, names in kept.items():
        number = numbers[priority]
        assert found.kept.get(number, 0) == len(names)
        assert sorted(found.newest.get(number, names)) == names


@settings(max_examples=times(40))
@given(repositories(), policies(), st.randoms())
def test_the_order_of_images_does_not_matter(
    images: list[oracle.Image], rules: Sequence[Rule], random: Random
) -> None:
    policy = compiled(rules)
    before = selected(images, policy)
    random.shuffle(images)
    after = selected(images, policy)
    assert after.expired.keys() == before.expired.keys()
    assert after.kept == before.kept
    assert {rule: set(ids) for rule, ids in after.newest.items()} == {
        rule: set(ids) for rule, ids in before.newest.items()
    }


@settings(max_examples=times(40))
@given(repositories(), policies())
def test_nothing_that_is_held_goes_and_the_order_can_be_deleted(
    images: list[oracle.Image], rules: Sequence[Rule]
) -> None:
    """Said without the oracle: what must hold of any outcome."""
    expired = list(selected(images, compiled(rules)).expired)
    place = {name: number for number, name in enumerate(expired)}
    there = {image.name: image for image in images}
    unconditional = [r for r in rules if r["action"] == "keep" and "keep_last" not in r]
    for name in expired:
        image = there[name]
        assert not image.is_pinned
        assert NOW - image.pushed_at >= oracle.HOUR
        assert NOW - (image.restored_at or 0) >= oracle.HOUR
        assert not any(oracle.selects(rule, image) for rule in unconditional)
        assert image.subject not in there or place[image.subject] < place[name]
        for parent in images:
            assert name not in parent.children or place[parent.name] < place[name]


@settings(max_examples=times(40))
@given(repositories(), policies())
def test_a_second_run_at_once_takes_nothing(
    images: list[oracle.Image], rules: Sequence[Rule]
) -> None:
    policy = compiled(rules)
    gone = selected(images, policy).expired
    rest = [image for image in images if image.name not in gone]
    assert not selected(rest, policy).expired
