"""The evaluator against its oracle on random policies, and the laws no policy may break.

``POLICY_CASES`` sets how many questions are asked (100,000 unless said).
"""

from __future__ import annotations

import json
import os
from ipaddress import ip_address
from random import Random

import pytest

from cloudcore.iam.decision import Caller, Question, Trace, Verdict, could_allow, decide
from cloudcore.iam.patterns import Patterns, StepBudget
from cloudcore.iam.policy import Policy, PolicyKind, ResourceRules, policy_of
from cloudcore.identity.rights.documents import read_stored
from registry.services.resource_kinds import REPOSITORY_RULES
from tests.property import policy_documents as make
from tests.property.policy_oracle import Asked, Document, fits, is_allowed

CASES = int(os.environ.get("POLICY_CASES", "100000"))
QUESTIONS = 25
SHARDS = 4


def parsed(document: Document | None, kind: PolicyKind | ResourceRules) -> Policy | None:
    return None if document is None else policy_of(document, kind)


def evaluate(asked: Asked, identity: list[Document], resource: Document | None) -> bool:
    """Ask the evaluator what the oracle is asked."""
    own = [policy_of(document, PolicyKind.IDENTITY) for document in identity]
    return answer(asked, own, parsed(resource, REPOSITORY_RULES))


def answer(asked: Asked, own: list[Policy], attached: Policy | None) -> bool:
    caller = None if asked.crn is None else Caller(asked.crn, asked.account)
    source = None if asked.source_ip is None else ip_address(asked.source_ip)
    question = Question(caller, asked.action, asked.resource, asked.owner, source, asked.now)
    return decide(question, own, attached).is_allowed


@pytest.mark.parametrize("shard", range(SHARDS))
def test_evaluator_and_oracle_agree(shard: int) -> None:
    random = Random(f"policies {shard}")
    allowed = 0
    for _ in range(CASES // SHARDS // QUESTIONS):
        identity = [make.document(random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        resource = make.document(random, attached=True) if random.random() < 0.7 else None
        own = [policy_of(document, PolicyKind.IDENTITY) for document in identity]
        attached = parsed(resource, REPOSITORY_RULES)
        for _ in range(QUESTIONS):
            asked = make.question(random)
            expected = is_allowed(asked, identity, resource)
            assert answer(asked, own, attached) is expected, (asked, identity, resource)
            allowed += expected
    share = allowed / (CASES // SHARDS)
    assert 0.05 < share < 0.6, "the cases say yes too seldom or too often to prove much"


def test_a_trace_is_of_the_decision_and_changes_nothing() -> None:
    """A traced decision is the plain one, and follows from the statements in its trace alone."""
    random, seen = Random("trace"), set()
    for _ in range(CASES // 20):
        identity = [make.document(random) for _ in range(random.choice((0, 1, 2)))]
        resource = make.document(random, attached=True) if random.random() < 0.7 else None
        own = [policy_of(document, PolicyKind.IDENTITY) for document in identity]
        attached = parsed(resource, REPOSITORY_RULES)
        asked = make.question(random)
        caller = None if asked.crn is None else Caller(asked.crn, asked.account)
        source = None if asked.source_ip is None else ip_address(asked.source_ip)
        question = Question(caller, asked.action, asked.resource, asked.owner, source, asked.now)
        trace = Trace()
        verdict = decide(question, own, attached, trace)
        assert verdict is decide(question, own, attached)
        for found, among in ((trace.identity, own), (trace.resource, [attached])):
            assert found is None or any(found.policy is each for each in among)
            assert found is None or any(found.statement is s for s in found.policy.statements)
        alone = [] if trace.identity is None else [Policy((trace.identity.statement,))]
        beside = None if trace.resource is None else Policy((trace.resource.statement,))
        assert decide(question, alone, beside) is verdict
        seen.add(verdict)
    assert len(seen) >= 5


def test_a_caller_that_could_do_nothing_is_never_allowed() -> None:
    """`could_allow` may say yes too often; its no is final wherever no resource policy speaks."""
    random = Random("could allow")
    refused = 0
    for _ in range(CASES // 20):
        identity = [make.document(random) for _ in range(random.choice((0, 1, 1, 2)))]
        own = [policy_of(document, PolicyKind.IDENTITY) for document in identity]
        asked = make.question(random)
        source = None if asked.source_ip is None else ip_address(asked.source_ip)
        if not could_allow(own, asked.action, source, asked.now):
            refused += 1
            for name in make.NAMES:
                there = asked._replace(resource=make.repository(asked.owner, name))
                assert not is_allowed(there, identity, None)
    assert refused > CASES // 100


def cases(name: str, count: int) -> list[tuple[Asked, list[Document], Document | None, Random]]:
    """Return questions with their policies; half of them are answered yes."""
    random = Random(name)
    found: list[tuple[Asked, list[Document], Document | None, Random]] = []
    while len(found) < count:
        identity = [make.document(random) for _ in range(random.choice((0, 1, 2)))]
        resource = make.document(random, attached=True) if random.random() < 0.7 else None
        asked = make.question(random)
        if is_allowed(asked, identity, resource) == (len(found) % 2 == 0):
            found.append((asked, identity, resource, random))
    return found


def shuffled(document: Document, random: Random) -> Document:
    statements = [
        {
            part: random.sample(value, len(value)) if isinstance(value, list) else value
            for part, value in random.sample(list(statement.items()), len(statement))
        }
        for statement in document["statements"]
    ]
    return {"version": "1", "statements": random.sample(statements, len(statements))}


def renamed(document: Document, names: dict[str, str]) -> Document:
    statements = [dict(statement) for statement in document["statements"]]
    for statement in statements:
        if "principals" in statement:
            statement["principals"] = [names.get(p, p) for p in statement["principals"]]
    return {"version": "1", "statements": statements}


def test_adding_a_deny_never_allows() -> None:
    for asked, identity, resource, random in cases("deny", 1000):
        before = evaluate(asked, identity, resource)
        denial = make.statement(random, attached=False) | {"effect": "deny"}
        more = [*identity, {"version": "1", "statements": [denial]}]
        assert evaluate(asked, more, resource) <= before
        statements = resource["statements"] if resource else []
        denial = make.statement(random, attached=True) | {"effect": "deny"}
        attached = {"version": "1", "statements": [*statements, denial]}
        assert evaluate(asked, identity, attached) <= before


def test_removing_an_allow_never_allows() -> None:
    for asked, identity, resource, random in cases("allow", 1000):
        before = evaluate(asked, identity, resource)
        for document in (*identity, *([resource] if resource else [])):
            allows = [s for s in document["statements"] if s["effect"] == "allow"]
            if not allows or len(document["statements"]) == 1:
                continue
            gone = random.choice(allows)
            document["statements"] = [s for s in document["statements"] if s is not gone]
            assert evaluate(asked, identity, resource) <= before
            before = evaluate(asked, identity, resource)


def test_order_means_nothing() -> None:
    for asked, identity, resource, random in cases("order", 1000):
        others = [shuffled(document, random) for document in random.sample(identity, len(identity))]
        attached = shuffled(resource, random) if resource else None
        assert evaluate(asked, others, attached) is evaluate(asked, identity, resource)


def test_names_of_principals_mean_nothing() -> None:
    names = {crn: crn.replace("/", "/x-") for crn, _ in make.CALLERS if crn and "user" not in crn}
    for asked, identity, resource, _ in cases("names", 1000):
        other = asked._replace(crn=names.get(asked.crn or "", asked.crn))
        attached = renamed(resource, names) if resource else None
        assert evaluate(other, identity, attached) is evaluate(asked, identity, resource)


def test_patterns_match_as_their_definition_says() -> None:
    random = Random("patterns")
    for _ in range(10_000):
        pattern = "".join(random.choices("ab*?.\n", k=random.randint(0, 8)))
        text = "".join(random.choices("ab.\n", k=random.randint(0, 8)))
        assert Patterns((pattern,)).match(text) is fits(pattern, text), (pattern, text)


def test_neither_decision_nor_cost_tells_whether_an_account_exists() -> None:
    """A handle in a policy that means an account is to all other accounts as one that means none.

    Names hold handles too: the key of an object may have colons.
    """
    random = Random("handles")
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
            asked = Question(caller, action, resource, make.OWN, source, make.NOON, work)
            found.append((decide(asked, [policy]), work.left))
        assert found[0] == found[1], (text, resource, found)
        used.update(found)
    assert len(used) > 100
