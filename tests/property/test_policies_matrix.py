"""The small model, whole: every kind of caller, action, resource policy, own policy and resource.

What the sign-in refuses (a garbage, expired or revoked token) never comes to the evaluator, and a
session that was limited has the role's policies only, so those rows have no place here.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from cloudcore.iam.decision import Caller, Question, Verdict, could_allow, decide
from cloudcore.iam.policy import PolicyKind, policy_of
from registry.services.resource_kinds import REPOSITORY_RULES
from tests.property.policy_documents import NOON, ORGANIZATION, OTHER, OWN, PERSON, repository
from tests.property.policy_oracle import Asked, Document, is_allowed

CALLERS: Final[dict[str, tuple[str | None, str | None]]] = {
    "anonymous": (None, None),
    "service account": (f"crn:iam::{OWN}:service-account/ci", OWN),
    "administrator": (f"crn:iam::{OWN}:role/admin", OWN),
    "role session": (f"crn:iam::{OWN}:role/dev", OWN),
    "another role": (f"crn:iam::{OWN}:role/ops", OWN),
    "person without role": (f"crn:iam::{ORGANIZATION}:user/{PERSON}", None),
    "foreign service account": (f"crn:iam::{OTHER}:service-account/ci", OTHER),
    "foreign role session": (f"crn:iam::{OTHER}:role/dev", OTHER),
    "foreign namesake": (f"crn:iam::{OTHER}:role/ops", OTHER),
}
ACTIONS: Final = (
    *("registry:PullImage", "registry:PushImage", "registry:DescribeImages"),
    *("registry:DeleteImage", "registry:CreateRepository", "registry:PutRepositoryPolicy"),
    *("iam:CreateRole", "iam:GetRole", "iam:ListRoles", "iam:UpdateRole", "iam:DeleteRole"),
    *("iam:AttachPolicy", "iam:AssumeRole", "kms:UseKey"),
)
RESOURCES: Final = (
    (repository(OWN, "app"), OWN),
    (repository(OWN, "app/nested"), OWN),
    (repository(OWN, "apple"), OWN),
    (repository(OTHER, "app"), OTHER),
    (f"crn:iam::{OWN}:role/app", OWN),
)


def policy(*statements: Document) -> Document:
    return {"version": "1", "statements": list(statements)}


def attached(effect: str, *principals: str, actions: tuple[str, ...] = ACTIONS[:1]) -> Document:
    return {"effect": effect, "principals": list(principals), "actions": list(actions)}


def own(effect: str, resource: str, *actions: str) -> Document:
    return {"effect": effect, "actions": list(actions), "resources": [resource]}


RESOURCE_POLICIES: Final[dict[str, Document | None]] = {
    "none": None,
    "account pull": policy(attached("allow", OTHER)),
    "account push": policy(attached("allow", OTHER, OWN, actions=ACTIONS[:2])),
    "role pull": policy(
        attached("allow", f"crn:iam::{OTHER}:role/dev", CALLERS["role session"][0] or "")
    ),
    "public": policy(attached("allow", "*")),
    "deny that account": policy(attached("deny", OTHER, actions=ACTIONS[:3])),
    "deny everyone": policy(attached("deny", "*", actions=ACTIONS[:3])),
    "public but for an account": policy(attached("allow", "*"), attached("deny", OTHER)),
    "a principal long gone": policy(attached("allow", PERSON, f"crn:iam::{OWN}:role/gone")),
}
OWN_POLICIES: Final[dict[str, list[Document]]] = {
    "none": [],
    "exact name": [policy(own("allow", RESOURCES[0][0], "*"))],
    "everything": [policy(own("allow", "*", "*"))],
    "prefix": [policy(own("allow", f"crn:registry:eu:{OWN}:repository/app*", "registry:*"))],
    "another name": [policy(own("allow", repository(OWN, "other"), "registry:*"))],
    "another action": [policy(own("allow", "*", "registry:DeleteImage"))],
    "explicit deny": [policy(own("deny", "*", "*"))],
    "allow and deny": [
        policy(own("allow", "*", "*")),
        policy(own("deny", RESOURCES[0][0], "registry:PullImage", "iam:*")),
    ],
    "not yet": [
        policy(own("allow", "*", "*") | {"conditions": {"date_after": "2100-01-01T00:00:00Z"}})
    ],
}


def test_every_row_agrees_with_the_oracle() -> None:
    rows = allowed = 0
    for (_, identity), (_, resource) in product(OWN_POLICIES.items(), RESOURCE_POLICIES.items()):
        parsed = [policy_of(document, PolicyKind.IDENTITY) for document in identity]
        on_it = None if resource is None else policy_of(resource, REPOSITORY_RULES)
        for who, action, (name, owner) in product(CALLERS.values(), ACTIONS, RESOURCES):
            crn, account = who
            expected = is_allowed(
                Asked(crn, account, action, name, owner, None, NOON), identity, resource
            )
            caller = None if crn is None else Caller(crn, account)
            question = Question(caller, action, name, owner, None, NOON)
            verdict = decide(question, parsed, on_it)
            assert verdict.is_allowed is expected, (who, action, name, identity, resource)
            if expected and crn is not None and resource is None:
                assert could_allow(parsed, action, None, NOON)
            rows += 1
            allowed += expected
    assert rows == 9 * 9 * 9 * 14 * 5
    assert 5_000 < allowed < rows / 2


def verdict(
    caller: str, own_policy: str, resource_policy: str, action: str = ACTIONS[0]
) -> Verdict:
    crn, account = CALLERS[caller]
    resource = RESOURCE_POLICIES[resource_policy]
    return decide(
        Question(None if crn is None else Caller(crn, account), action, *RESOURCES[0], None, NOON),
        [policy_of(each, PolicyKind.IDENTITY) for each in OWN_POLICIES[own_policy]],
        None if resource is None else policy_of(resource, REPOSITORY_RULES),
    )


def test_a_refusal_says_what_is_missing() -> None:
    stranger = "foreign service account"
    assert verdict(stranger, "none", "public") is Verdict.NEEDS_IDENTITY_POLICY
    assert verdict(stranger, "everything", "none") is Verdict.NEEDS_RESOURCE_POLICY
    assert verdict(stranger, "none", "none") is Verdict.NO_ALLOW
    assert verdict(stranger, "everything", "deny everyone") is Verdict.RESOURCE_DENY
    assert verdict("service account", "none", "public") is Verdict.NO_ALLOW
    assert verdict("role session", "none", "role pull") is Verdict.ALLOWED
    assert verdict("anonymous", "everything", "none") is Verdict.NO_ALLOW
    assert verdict("person without role", "none", "public") is Verdict.NEEDS_IDENTITY_POLICY
