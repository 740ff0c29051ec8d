"""What is kept of policies is bounded by what it takes, whatever tenants write."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from cloudcore.iam.policy import (
    MAX_BYTES,
    Policy,
    PolicyKind,
    WeighedCache,
    memory_of,
    policy_of,
)
from cloudcore.identity.rights import documents
from cloudcore.identity.rights.documents import read_stored

ACTIONS = [f"registry:Action{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
_ALLOW = {"effect": "allow", "actions": ["*"]}
GREEDY: dict[str, list[dict[str, Any]]] = {
    "networks": [
        {**_ALLOW, "resources": ["*"], "conditions": {"ip_address": [f"::{n:x}" for n in one]}}
        for one in [range(100)] * 22
    ],
    "patterns": [{**_ALLOW, "resources": [f"crn:{n}*" for n in range(40)]} for _ in range(40)],
    "pieces": [{**_ALLOW, "resources": ["crn:" + "*ab" * 600] * 10}],
    "statements": [{**_ALLOW, "resources": ["*"]}] * 50,
}


def _document(number: int, statements: Sequence[dict[str, Any]]) -> str:
    first = {**statements[0], "sid": str(number)}
    made = {"version": "1", "statements": [first, *statements[1:]]}
    return json.dumps(made, separators=(",", ":"))


def _asked(document: str) -> Policy:
    policy = policy_of(json.loads(document), PolicyKind.IDENTITY)
    for action in ACTIONS:
        for statement in policy.about(action).allows:
            statement.resources.match("crn:x")
    return policy


@pytest.mark.parametrize("name", sorted(GREEDY))
def test_no_policy_takes_more_than_is_counted(name: str) -> None:
    texts = [_document(number, GREEDY[name]) for number in range(3)]
    assert max(map(len, texts)) <= MAX_BYTES
    _asked(texts[0])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        policies = [_asked(text) for text in texts]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before <= sum(map(memory_of, policies))


def test_what_is_kept_of_policies_stays_within_its_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache: WeighedCache[tuple[str, str, PolicyKind], Policy] = WeighedCache(2_500_000)
    monkeypatch.setattr(documents, "_policies", cache)
    texts = [_document(number, GREEDY["networks"]) for number in range(4)]
    for text in texts:
        policy = read_stored(text, "{}", PolicyKind.IDENTITY)
        assert read_stored(text, "{}", PolicyKind.IDENTITY) is policy
    assert 0 < cache.weight <= 2_500_000
    assert cache.get((texts[0], "{}", PolicyKind.IDENTITY)) is None
    assert cache.get((texts[-1], "{}", PolicyKind.IDENTITY)) is not None


def test_what_was_used_longest_ago_goes_first() -> None:
    cache: WeighedCache[str, int] = WeighedCache(30)
    for number, key in enumerate("abc"):
        cache.keep(key, number, 10)
    assert cache.get("a") == 0
    cache.keep("d", 3, 10)
    assert cache.get("b") is None
    assert [cache.get(key) for key in "acd"] == [0, 2, 3]
    cache.keep("a", 4, 25)
    assert (cache.get("a"), cache.weight) == (4, 25)


def test_what_is_heavier_than_the_capacity_is_not_kept() -> None:
    cache: WeighedCache[str, int] = WeighedCache(30)
    cache.keep("a", 1, 31)
    assert (cache.get("a"), cache.weight) == (None, 0)
