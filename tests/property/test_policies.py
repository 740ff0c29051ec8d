"""The evaluator against its oracle on random policies.

``SOAK=20`` in the environment asks twenty times as many questions.
"""

from __future__ import annotations

import json
from ipaddress import ip_address
from random import Random

import pytest

from cloudcore.iam.decision import Caller, Question, Trace, Verdict, could_allow, decide
from cloudcore.iam.patterns import Patterns, StepBudget
from cloudcore.iam.policy import Policy, PolicyKind, policy_of
from cloudcore.identity.rights.documents import read_stored
from registry.services.resource_kinds import REPOSITORY_RULES
from tests.property import policy_documents as make
from tests.property.policy_oracle import Asked, Document, fits, is_allowed
from tests.soak import drawing, times

CASES = times(32_000)
QUESTIONS = 25
SHARDS = 4


def own_policies(documents: list[Document]) -> list[Policy]:
    return [policy_of(each, PolicyKind.IDENTITY) for each in documents]


def attached_policy(random: Random) -> tuple[Document | None, Policy | None]:
    """Return a random policy of a repository, as it is written and read; or, at times, none."""
    if random.random() >= 0.7:
        return None, None
    document = make.document(random, attached=True)
    return document, policy_of(document, REPOSITORY_RULES)


def question(asked: Asked) -> Question:
    """Return for the evaluator what the oracle is asked."""
    caller = None if asked.crn is None else Caller(asked.crn, asked.account)
    source = None if asked.source_ip is None else ip_address(asked.source_ip)
    return Question(caller, asked.action, asked.resource, asked.owner, source, asked.now)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_evaluator_and_oracle_agree(shard: int) -> None:
    random = drawing(f"policies {shard}")
    allowed = 0
    for _ in range(CASES // SHARDS // QUESTIONS):
        identity = [make.document(random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        own = own_policies(identity)
        resource, attached = attached_policy(random)
        for _ in range(QUESTIONS):
            asked = make.question(random)
            expected = is_allowed(asked, identity, resource)
            found = decide(question(asked), own, attached).is_allowed
            assert found is expected, (asked, identity, resource)
            allowed += expected
    share = allowed / (CASES // SHARDS)
    assert 0.05 < share < 0.6, "the cases say yes too seldom or too often to prove much"


def test_a_trace_is_of_the_decision_and_changes_nothing() -> None:
    """A traced decision is the plain one, and follows from the statements in its trace alone."""
    random, seen = drawing("trace"), set()
    for _ in range(CASES // 20):
        own = own_policies([make.document(random) for _ in range(random.choice((0, 1, 2)))])
        _, attached = attached_policy(random)
        asked, trace = question(make.question(random)), Trace()
        verdict = decide(asked, own, attached, trace)
        assert verdict is decide(asked, own, attached)
        for found, among in ((trace.identity, own), (trace.resource, [attached])):
            assert found is None or any(found.policy is each for each in among)
            assert found is None or any(found.statement is s for s in found.policy.statements)
        alone = [] if trace.identity is None else [Policy((trace.identity.statement,))]
        beside = None if trace.resource is None else Policy((trace.resource.statement,))
        assert decide(asked, alone, beside) is verdict
        seen.add(verdict)
    assert len(seen) >= 5


def test_a_caller_that_could_do_nothing_is_never_allowed() -> None:
    """`could_allow` may say yes too often; its no is final wherever no resource policy speaks."""
    random = drawing("could allow")
    refused = 0
    for _ in range(CASES // 20):
        identity = [make.document(random) for _ in range(random.choice((0, 1, 1, 2)))]
        asked = make.question(random)
        source = question(asked).source_ip
        if not could_allow(own_policies(identity), asked.action, source, asked.now):
            refused += 1
            for name in make.NAMES:
                there = asked._replace(resource=make.repository(asked.owner, name))
                assert not is_allowed(there, identity, None)
    assert refused > CASES // 100


def test_a_caller_to_whom_everything_is_denied_could_do_nothing() -> None:
    """So it is refused before a lookup, and does not learn which ids exist."""
    random = drawing("all denied")
    deny = {"effect": "deny", "actions": ["*"], "resources": ["*"]}
    for _ in range(100):
        identity = [make.document(random) for _ in range(random.choice((0, 1, 2)))]
        identity.insert(random.randint(0, len(identity)), {"version": "1", "statements": [deny]})
        assert not could_allow(
            own_policies(identity), make.question(random).action, None, make.NOON
        )


def test_patterns_match_as_their_definition_says() -> None:
    random = drawing("patterns")
    for _ in range(10_000):
        pattern = "".join(random.choices("ab*?.\n", k=random.randint(0, 8)))
        text = "".join(random.choices("ab.\n", k=random.randint(0, 8)))
        assert Patterns((pattern,)).match(text) is fits(pattern, text), (pattern, text)


def test_neither_decision_nor_cost_tells_whether_an_account_exists() -> None:
    """A handle in a policy that means an account is to all other accounts as one that means none.

    Names hold handles too: the key of an object may have colons.
    """
    random = drawing("handles")
    caller = Caller(f"crn:iam::{make.OWN}:role/dev", make.OWN)
    source = ip_address("10.1.2.3")
    used: set[tuple[Verdict, int]] = set()
    for _ in range(CASES // 10):
        handle = random.choice(("ap", "app", "team-of-some-thirty-letters-xx"))
        text = json.dumps(make.document(random)).replace(make.OTHER, handle)
        text = text.replace("repository/team", f"x:{handle}:repository/team")
        name = random.choice((*make.NAMES, f"x:{handle}:repository/team/app", "ap" * 60))
        resource, action = make.repository(make.OWN, name), random.choice(make.ATTACHED_ACTIONS)
        found = []
        for ids in ({}, {handle: make.OTHER}):
            policy = read_stored(text, json.dumps(ids), PolicyKind.IDENTITY)
            work = StepBudget(10**9)
            tried = Question(caller, action, resource, make.OWN, source, make.NOON, work)
            found.append((decide(tried, [policy]), work.left))
        assert found[0] == found[1], (text, resource, found)
        used.update(found)
    assert len(used) > 100
