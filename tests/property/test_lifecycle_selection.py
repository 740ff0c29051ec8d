"""The selection against an oracle that is slow and plain, on repositories made at random.

``SOAK=20`` in the environment tries twenty times as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property import lifecycle_oracle as oracle
from tests.property.lifecycle_oracle import Rule
from tests.property.lifecycle_selections import compiled, selected
from tests.property.lifecycle_worlds import NOW, policies, repositories
from tests.soak import times


@settings(max_examples=times(300))
@given(repositories(), policies())
def test_what_goes_is_what_the_oracle_says(
    images: list[oracle.Image], rules: Sequence[Rule]
) -> None:
    policy = compiled(rules)
    expired = selected(images, policy).expired
    by_rule = {
        name: policy.rules[why.rule].priority
        for name, why in expired.items()
        if why.rule is not None
    }
    assert by_rule == oracle.expire(images, rules, NOW)
    assert by_rule.keys() == expired.keys()


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


@given(repositories(), policies())
def test_a_second_run_at_once_takes_nothing(
    images: list[oracle.Image], rules: Sequence[Rule]
) -> None:
    policy = compiled(rules)
    gone = selected(images, policy).expired
    rest = [image for image in images if image.name not in gone]
    assert not selected(rest, policy).expired
