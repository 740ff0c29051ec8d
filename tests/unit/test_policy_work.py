"""What policies may cost, in work and memory: counted at worst, refused beyond, never an allow."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Sequence
from time import thread_time
from typing import Any

import pytest

from cloudcore.iam.decision import DECISION_STEPS, Caller, Question, Verdict, decide
from cloudcore.iam.patterns import Patterns, StepBudget, TooCostly
from cloudcore.iam.policy import (
    MAX_BYTES,
    MAX_PRINCIPAL_BYTES,
    Policy,
    PolicyKind,
    WeighedCache,
    memory_of,
    policy_of,
)
from cloudcore.identity.rights import documents
from cloudcore.identity.rights.documents import read_stored

LONGEST = f"crn:registry:local:{'0' * 36}:repository/{'a' * 250}"
"""As long as the name of a repository can make it, and longer."""


def inner(size: int) -> str:
    """Return a pattern whose inner piece is nearly found everywhere in a run of a letter."""
    half = "a" * (size // 2)
    return f"crn:*{half}b{half}*"


WORST: dict[str, Callable[[int], str]] = {
    "one letter": lambda _: "crn:*b*",
    "pieces of one letter": lambda _: "crn:" + "*a" * 60 + "*b*",
    "short pieces": lambda _: inner(10),
    "pieces": lambda _: inner(50),
    "long pieces": lambda _: inner(140),
    "open pieces": lambda _: "crn:*" + "a?" * 60 + "b*",
    "open places": lambda _: "crn:*?b*",
    "a late mismatch": lambda _: "crn:*" + "a" * 120 + "b0",
    "an open end": lambda _: "crn:*" + "?" * 200 + "b",
}


def question(resource: str, work: StepBudget | None = None) -> Question:
    caller = Caller("crn:iam::a:service-account/ci", "a")
    return Question(caller, "registry:PullImage", resource, "a", None, 0, work)


def policy(effect: str, resources: list[str], **more: Any) -> Policy:  # noqa: ANN401
    statements = [
        {"effect": effect, "actions": ["*"], "resources": resources[at : at + 100], **more}
        for at in range(0, len(resources), 100)
    ]
    text = json.dumps({"version": "1", "statements": statements}, separators=(",", ":"))
    assert len(text) <= MAX_BYTES
    return policy_of(json.loads(text), PolicyKind.IDENTITY)


def fill(make: Callable[[int], str], size: int) -> list[str]:
    """Return as many patterns as a document of `size` bytes holds."""
    room = size - 200
    found: list[str] = []
    while True:
        pattern = make(len(found))
        room -= len(pattern) + 3 + (100 if len(found) % 100 == 0 else 0)
        if room < 0 or len(found) == 5000:
            return found
        found.append(pattern)


@pytest.mark.parametrize("name", WORST)
def test_what_a_principal_may_have_never_needs_more_than_a_decision_has(name: str) -> None:
    own = [policy("deny", fill(WORST[name], MAX_BYTES)) for _ in range(2)]
    assert MAX_PRINCIPAL_BYTES == 2 * MAX_BYTES
    assert decide(question(LONGEST), own) is Verdict.NO_ALLOW


@pytest.mark.parametrize("name", WORST)
def test_a_step_is_as_short_as_it_says(name: str) -> None:
    """Work that is counted takes its 0.4 ns a step; on a slow machine some times that.

    Of five tries the shortest counts: what else the machine does only makes them longer.
    """
    patterns = Patterns(tuple(fill(WORST[name], MAX_BYTES)))
    patterns.match("")
    seconds = []
    for _ in range(5):
        work = StepBudget(DECISION_STEPS)
        began = thread_time()
        assert not patterns.match(LONGEST, work)
        seconds.append(thread_time() - began)
    assert min(seconds) < 1e-3 + 20 * 0.4e-9 * (DECISION_STEPS - work.left)


def test_networks_are_work_too() -> None:
    networks = [f"10.{number // 250}.{number % 250}.0/24" for number in range(100)]
    conditions = {"ip_address": networks}
    own = [policy("deny", ["*"], conditions=conditions)]
    work = StepBudget(DECISION_STEPS)
    assert decide(question("crn:x", work), own) is Verdict.NO_ALLOW
    assert DECISION_STEPS - work.left > len(networks) * 100


def test_work_that_ends_never_allows() -> None:
    """Not even where an allow was found before: a deny might have followed."""
    own = [policy("allow", ["*"]), policy("deny", [inner(50)] * 100)]
    verdict = decide(question(LONGEST, StepBudget(10_000)), own)
    assert verdict is Verdict.TOO_COSTLY
    assert not verdict.is_allowed
    assert decide(question(LONGEST), own) is Verdict.ALLOWED
    own = [policy("allow", [*[inner(50)] * 100, "*"])]
    assert decide(question(LONGEST, StepBudget(10_000)), own) is Verdict.TOO_COSTLY


def test_work_is_shared_and_ends() -> None:
    work = StepBudget(100_000)
    patterns = Patterns((inner(50),))
    for _ in range(7):
        patterns.match(LONGEST, work)
    with pytest.raises(TooCostly):
        patterns.match(LONGEST, work)


def test_anchored_ends_are_looked_at_first() -> None:
    """Nothing is sought for a pattern that the ends rule out."""
    work = StepBudget(10_000)
    assert not Patterns(("crn:*" + "a" * 120 + "b0",) * 10).match(LONGEST, work)
    assert not Patterns(("crn:kms:" + inner(50),) * 10).match(LONGEST, work)


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        ("a*b?c*d", "axxbyczzd", True),
        ("a*b?c*d", "axxb*czzd", False),
        ("a*b?c*d", "ab1cb2cd", True),
        ("?*", "*", False),
        ("*?", "a", True),
        ("a*?a", "aa", False),
        ("a*?a", "aba", True),
        ("*a?*?b*", "aab", False),
        ("*a?*?b*", "aaab", True),
        ("ab*ba", "aba", False),
        ("*ab*ab*", "ab", False),
        ("*ab*ab*", "abab", True),
        ("a?", "ab", True),
        ("a?", "abc", False),
        ("", "", True),
        ("", "a", False),
        ("**", "", True),
    ],
)
def test_patterns_fit_as_they_are_read(pattern: str, value: str, fits: bool) -> None:
    assert Patterns((pattern,)).match(value) is fits


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
