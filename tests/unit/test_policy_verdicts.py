"""What a decision says is missing; `test_policies` proves its yes and no."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cloudcore.iam.decision import Caller, Question, Verdict, decide
from cloudcore.iam.policy import Policy, PolicyKind, ResourceRules, policy_of
from registry.services.resource_kinds import REPOSITORY_RULES

OWN: Final = "01890000-0000-7000-8000-00000000000a"
OTHER: Final = "01890000-0000-7000-8000-00000000000b"
DEV: Final = f"crn:iam::{OWN}:role/dev"
ON_ALL: Final = {"effect": "allow", "actions": ["*"], "resources": ["*"]}
INSIDER: Final = Caller(f"crn:iam::{OWN}:service-account/ci", OWN)
STRANGER: Final = Caller(f"crn:iam::{OTHER}:service-account/ci", OTHER)
PERSON: Final = Caller(f"crn:iam::{OTHER}:user/{OTHER}", None)


def on_it(*principals: str, effect: str = "allow") -> dict[str, Any]:
    return {"effect": effect, "actions": ["registry:PullImage"], "principals": list(principals)}


@pytest.mark.parametrize(
    ("caller", "own", "attached", "verdict"),
    [
        (STRANGER, None, on_it("*"), Verdict.NEEDS_IDENTITY_POLICY),
        (STRANGER, ON_ALL, None, Verdict.NEEDS_RESOURCE_POLICY),
        (STRANGER, None, None, Verdict.NO_ALLOW),
        (STRANGER, ON_ALL, on_it("*", effect="deny"), Verdict.RESOURCE_DENY),
        (STRANGER, ON_ALL | {"effect": "deny"}, on_it("*"), Verdict.EXPLICIT_DENY),
        (INSIDER, None, on_it("*"), Verdict.NO_ALLOW),
        (Caller(DEV, OWN), None, on_it(DEV), Verdict.ALLOWED),
        (None, None, None, Verdict.NO_ALLOW),
        (PERSON, None, on_it("*"), Verdict.NEEDS_IDENTITY_POLICY),
    ],
)
def test_a_refusal_says_what_is_missing(
    caller: Caller | None,
    own: dict[str, Any] | None,
    attached: dict[str, Any] | None,
    verdict: Verdict,
) -> None:
    def policy(statement: dict[str, Any], kind: PolicyKind | ResourceRules) -> Policy:
        return policy_of({"version": "1", "statements": [statement]}, kind)

    identity = [] if own is None else [policy(own, PolicyKind.IDENTITY)]
    resource = None if attached is None else policy(attached, REPOSITORY_RULES)
    crn = f"crn:registry:eu:{OWN}:repository/app"
    question = Question(caller, "registry:PullImage", crn, OWN, None, 0)
    assert decide(question, identity, resource) is verdict
