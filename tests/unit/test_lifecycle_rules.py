"""Documents of lifecycle rules: what each part selects, and what is refused by which field."""

from __future__ import annotations

from typing import Any

import pytest

from cloudcore.errors import InvalidInput
from cloudcore.web.strict_json import convert
from registry.services.lifecycle.rules import (
    DAY,
    MAX_RULES,
    LifecycleRule,
    Rules,
    check_rules,
    parse_rules,
    policy_of,
)

EXPIRE: dict[str, Any] = {"priority": 1, "selector": "any", "keep_last": 1}
TAGGED: dict[str, Any] = {"priority": 1, "selector": "tagged", "keep_last": 1}
UNTAGGED: dict[str, Any] = {"priority": 1, "selector": "untagged", "older_than_days": 1}
KEEP: dict[str, Any] = {"priority": 1, "selector": "tagged", "action": "keep"}


def stored(*rules: dict[str, Any]) -> str:
    return check_rules(convert(list(rules), Rules))


def refusal(*rules: Any) -> tuple[str, str]:  # noqa: ANN401 - whatever a client may send
    with pytest.raises(InvalidInput) as refused:
        stored(*rules)
    return refused.value.params["field"], refused.value.params["reason"]


@pytest.mark.parametrize(
    ("rule", "field", "reason"),
    [
        ({"selector": "any", "keep_last": 1}, "priority", "missing"),
        ({"priority": 1, "keep_last": 1}, "selector", "missing"),
        (EXPIRE | {"priority": 0}, "priority", "out_of_range"),
        (EXPIRE | {"priority": 2**31}, "priority", "out_of_range"),
        (EXPIRE | {"priority": "1"}, "priority", "wrong_type"),
        (EXPIRE | {"priority": 1.5}, "priority", "wrong_type"),
        (EXPIRE | {"priority": True}, "priority", "wrong_type"),
        (EXPIRE | {"priority": None}, "priority", "wrong_type"),
        (EXPIRE | {"selector": "all"}, "selector", "not_allowed"),
        (EXPIRE | {"selector": ["any"]}, "selector", "wrong_type"),
        (EXPIRE | {"action": "delete"}, "action", "not_allowed"),
        (EXPIRE | {"Action": "keep"}, "Action", "unknown_field"),
        (EXPIRE | {"tagStatus": "any"}, "tagStatus", "unknown_field"),
        (EXPIRE | {"description": "x" * 257}, "description", "out_of_range"),
        (EXPIRE | {"description": 1}, "description", "wrong_type"),
        (EXPIRE | {"tag_prefixes": ["v"]}, "tag_prefixes", "not_allowed"),
        (UNTAGGED | {"tag_patterns": ["v*"]}, "tag_patterns", "not_allowed"),
        (TAGGED | {"tag_prefixes": "v"}, "tag_prefixes", "wrong_type"),
        (TAGGED | {"tag_prefixes": [""]}, "tag_prefixes[0]", "out_of_range"),
        (TAGGED | {"tag_prefixes": ["a", "b*"]}, "tag_prefixes[1]", "malformed"),
        (TAGGED | {"tag_prefixes": ["v\n"]}, "tag_prefixes[0]", "malformed"),
        (TAGGED | {"tag_patterns": ["v?"]}, "tag_patterns[0]", "malformed"),
        (TAGGED | {"tag_patterns": ["[a]"]}, "tag_patterns[0]", "malformed"),
        (TAGGED | {"tag_patterns": ["a" * 129]}, "tag_patterns[0]", "out_of_range"),
        (TAGGED | {"tag_patterns": ["a"] * 101}, "tag_patterns", "out_of_range"),
        (TAGGED | {"tag_patterns": [1]}, "tag_patterns[0]", "wrong_type"),
        ({"priority": 1, "selector": "any"}, "", "missing"),
        ({"priority": 1, "selector": "tagged", "tag_prefixes": ["v"]}, "", "missing"),
        (EXPIRE | {"older_than_days": 1}, "keep_last", "not_allowed"),
        (UNTAGGED | {"not_pulled_for_days": 1}, "not_pulled_for_days", "not_allowed"),
        (UNTAGGED | {"older_than_days": 0}, "older_than_days", "out_of_range"),
        (UNTAGGED | {"older_than_days": 36_501}, "older_than_days", "out_of_range"),
        (EXPIRE | {"keep_last": 0}, "keep_last", "out_of_range"),
        (EXPIRE | {"keep_last": 10_001}, "keep_last", "out_of_range"),
        (KEEP | {"older_than_days": 1}, "older_than_days", "not_allowed"),
        (KEEP | {"keep_last": 1, "not_pulled_for_days": 1}, "not_pulled_for_days", "not_allowed"),
    ],
)
def test_a_bad_rule_is_refused_by_its_field(rule: dict[str, Any], field: str, reason: str) -> None:
    good = {"priority": 99, "selector": "untagged", "older_than_days": 1}
    where = f"[1].{field}" if field else "rules[1]"
    found, why = refusal(good, rule)
    assert found.removeprefix("rules") == where.removeprefix("rules")
    assert why == reason


@pytest.mark.parametrize("rule", [None, 1, "any", [], [EXPIRE]])
def test_what_is_no_rule_is_refused(rule: object) -> None:
    assert refusal(rule) == ("[0]", "wrong_type")


def test_how_many_rules_there_may_be() -> None:
    rules = [UNTAGGED | {"priority": number} for number in range(1, MAX_RULES + 2)]
    assert len(parse_rules(stored(*rules[:MAX_RULES]))) == MAX_RULES
    assert refusal(*rules)[1] == "out_of_range"
    assert refusal()[1] == "out_of_range"


def test_a_document_has_at_most_so_many_bytes() -> None:
    rule = KEEP | {"tag_patterns": ["a" * 128] * 100}
    assert stored(rule)
    assert refusal(rule, rule | {"priority": 2}) == ("rules", "out_of_range")


def test_priorities_are_unique() -> None:
    assert refusal(KEEP, EXPIRE) == ("rules[1].priority", "duplicate")


def test_the_expire_rule_for_any_is_the_last() -> None:
    later = UNTAGGED | {"priority": 2}
    assert refusal(EXPIRE, later) == ("rules[0].selector", "not_last")
    assert refusal(later, EXPIRE) == ("rules[1].selector", "not_last")
    assert stored(EXPIRE | {"priority": 3}, later)
    assert stored(EXPIRE, KEEP | {"priority": 2})
    assert stored(KEEP | {"selector": "any"}, later)


def test_what_is_stored_can_be_put_again() -> None:
    document = stored(
        KEEP | {"tag_patterns": ["v*"], "description": "releases"}, UNTAGGED | {"priority": 7}
    )
    assert check_rules(parse_rules(document)) == document
    assert [rule.priority for rule in parse_rules(document)] == [1, 7]


@pytest.mark.parametrize(
    ("lists", "taken", "left"),
    [
        ({}, ["a", "v1", "latest"], []),
        ({"tag_prefixes": ["v", "rel-"]}, ["v", "v1", "rel-2"], ["av", "rel", "V1"]),
        ({"tag_patterns": ["v*.0"]}, ["v1.0", "v.0", "v1.0.0"], ["v1.0-rc", "1.0", "v0"]),
        ({"tag_patterns": ["*-rc*"]}, ["1-rc", "-rc1", "1-rc-2"], ["1-r", "rc"]),
        ({"tag_patterns": ["v1.0"]}, ["v1.0"], ["v1x0", "v1.0.0"]),
        ({"tag_patterns": ["*"]}, ["a", "0"], []),
        ({"tag_prefixes": ["a"], "tag_patterns": ["*z"]}, ["ab", "yz", "az"], ["by"]),
    ],
)
def test_a_tag_that_fits_one_of_the_lists_suffices(
    lists: dict[str, Any], taken: list[str], left: list[str]
) -> None:
    policy = policy_of(stored(TAGGED | lists))
    assert [tag for tag in taken + left if policy.of_tag(tag)] == taken
    assert policy.of_untagged == policy.of_any == 0


def test_sets_of_rules_follow_the_priorities() -> None:
    rules = [
        {"priority": 9, "selector": "any", "older_than_days": 3},
        {"priority": 5, "selector": "tagged", "tag_prefixes": ["ci-"], "not_pulled_for_days": 2},
        {"priority": 7, "selector": "tagged", "action": "keep"},
        {"priority": 1, "selector": "untagged", "keep_last": 4},
    ]
    policy = policy_of(stored(*rules))
    assert [rule.priority for rule in policy.rules] == [1, 5, 7, 9]
    assert policy.of_untagged == 0b1001
    assert policy.of_any == 0b1000
    assert policy.keeping == 0b0100
    assert policy.of_tag("ci-1") == 0b1110
    assert policy.of_tag("v1") == 0b1100
    assert [(r.keep_last, r.not_pulled_for, r.older_than) for r in policy.rules] == [
        (4, None, None),
        (None, 2 * DAY, None),
        (None, None, None),
        (None, None, 3 * DAY),
    ]


def test_a_pattern_of_many_stars_is_matched_in_little_time() -> None:
    """One that backtracks would not end."""
    policy = policy_of(stored(TAGGED | {"tag_patterns": ["a*" * 60 + "b"]}))
    assert not policy.of_tag("a" * 128)


def test_the_shape_says_what_it_holds() -> None:
    rule = LifecycleRule(priority=1, selector="any", keep_last=3)
    assert rule.action == "expire"
    assert rule.tag_prefixes == rule.tag_patterns == []


def test_patterns_of_a_policy_have_a_largest_size_together() -> None:
    pattern = "*" + "a" * 60 + "b" + "a" * 60 + "*"
    rules = [KEEP | {"priority": number, "tag_patterns": [pattern] * 8} for number in range(1, 9)]
    stored(*rules)
    more = KEEP | {"priority": 9, "tag_patterns": [pattern] * 8}
    assert refusal(*rules, more) == ("rules", "out_of_range")
