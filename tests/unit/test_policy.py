"""Policy documents that are refused, what they can name, and what a refused request is missing."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any, Final

import pytest

from cloudcore.errors import InvalidInput
from cloudcore.family import vocabulary
from cloudcore.iam.conditions import Conditions
from cloudcore.iam.decision import Caller, Question, Verdict, decide
from cloudcore.iam.policy import Effect, Policy, PolicyKind, ResourceRules, policy_of
from cloudcore.iam.templates import PolicyTemplate
from registry.composition.families import FAMILIES
from registry.services.resource_kinds import REPOSITORY_RULES

ACCOUNT = "01890000-0000-7000-8000-00000000000a"
ALLOW = {"effect": "allow", "actions": ["registry:PullImage"], "resources": ["*"]}
SHARE = {"effect": "allow", "actions": ["registry:PullImage"], "principals": ["acme"]}
TRUST = {"effect": "allow", "principals": [f"crn:iam::{ACCOUNT}:service-account/ci"]}


def parse(kind: PolicyKind | ResourceRules, *statements: object, **top: object) -> Policy:
    document = {"version": "1", "statements": list(statements), **top}
    return policy_of(document, kind)


def field_refused(kind: PolicyKind | ResourceRules, *statements: object, **top: object) -> str:
    with pytest.raises(InvalidInput) as refused:
        parse(kind, *statements, **top)
    assert re.fullmatch("[a-z_]+", refused.value.params["reason"])  # a word, for programs
    return str(refused.value.params["field"])


def test_each_kind_reads() -> None:
    (identity,) = parse(PolicyKind.IDENTITY, ALLOW | {"sid": "Pull all."}).statements
    assert identity.resources.texts == ("*",)
    assert identity.principals == frozenset()
    (shared,) = parse(REPOSITORY_RULES, SHARE | {"effect": "deny"}).statements
    assert shared.effect is Effect.DENY
    assert shared.principals == {"acme"}
    (trust,) = parse(PolicyKind.TRUST, TRUST).statements
    assert trust.actions.texts == ("iam:AssumeRole",)


@pytest.mark.parametrize("document", [None, [], "text", 1])
def test_what_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(InvalidInput):
        policy_of(document, PolicyKind.IDENTITY)


@pytest.mark.parametrize(
    ("field", "top"),
    [
        ("version", {"version": "2"}),
        ("version", {"version": 1}),
        ("version", {"version": None}),
        ("statements", {"statements": []}),
        ("statements", {"statements": [ALLOW] * 51}),
        ("statements", {"statements": ALLOW}),
        ("id", {"id": "x"}),
        ("\\ud800", {"\ud800": "x"}),
    ],
)
def test_the_top_is_strict(field: str, top: dict[str, Any]) -> None:
    assert field_refused(PolicyKind.IDENTITY, ALLOW, **top) == field


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("effect", {"effect": "Allow"}),
        ("effect", {"effect": None}),
        ("effect", {"effect": []}),
        ("sid", {"sid": ""}),
        ("sid", {"sid": None}),
        ("sid", {"sid": "é"}),
        ("sid", {"sid": "x" * 129}),
        ("actions", {"actions": "registry:PullImage"}),
        ("actions", {"actions": []}),
        ("actions", {"actions": ["registry:PullImage"] * 101}),
        ("actions", {"actions": ["registry:*Image"]}),
        ("actions", {"actions": ["registry:Pull?mage"]}),
        ("actions", {"actions": ["reg*"]}),
        ("actions", {"actions": ["registry"]}),
        ("actions", {"actions": ["registry:PullImage\n"]}),
        ("actions", {"actions": [1]}),
        ("resources", {"resources": []}),
        ("resources", {"resources": ["repository/app"]}),
        ("resources", {"resources": ["crn: space"]}),
        ("resources", {"resources": ["crn:\u0661"]}),
        ("resources", {"resources": ["crn:" + "x" * 2045]}),
        ("not_actions", {"not_actions": ["*"]}),
        ("NotAction", {"NotAction": "*"}),
        ("principals", {"principals": ["*"]}),
        ("conditions", {"conditions": None}),
        ("conditions", {"conditions": []}),
        ("conditions.mfa", {"conditions": {"mfa": True}}),
        ("conditions.ip_address", {"conditions": {"ip_address": "10.0.0.0/8"}}),
        ("conditions.ip_address", {"conditions": {"ip_address": []}}),
        ("conditions.ip_address", {"conditions": {"ip_address": ["10.0.0.1/8"]}}),
        ("conditions.ip_address", {"conditions": {"ip_address": ["010.0.0.0/8"]}}),
        ("conditions.ip_address", {"conditions": {"ip_address": ["example.org"]}}),
        ("conditions.not_ip_address", {"conditions": {"not_ip_address": ["fe80::1%eth0"]}}),
        ("conditions.date_before", {"conditions": {"date_before": "2026-01-01"}}),
        ("conditions.date_before", {"conditions": {"date_before": "2026-01-01T00:00:00"}}),
        ("conditions.date_before", {"conditions": {"date_before": "2026-02-30T00:00:00Z"}}),
        ("conditions.date_before", {"conditions": {"date_before": "20260101T000000Z"}}),
        ("conditions.date_before", {"conditions": {"date_before": "10000-01-01T00:00:00Z"}}),
        ("conditions.date_after", {"conditions": {"date_after": 0}}),
        ("conditions.date_after", {"conditions": {"date_after": None}}),
        ("conditions.date_after", {"conditions": {"date_after": "2026-01-01T00:00:00+25:00"}}),
    ],
)
def test_a_statement_is_strict(field: str, change: dict[str, Any]) -> None:
    assert field_refused(PolicyKind.IDENTITY, ALLOW, ALLOW | change) == f"statements[1].{field}"


@pytest.mark.parametrize("part", ["effect", "actions", "resources"])
def test_no_part_may_be_missing(part: str) -> None:
    partial = {name: value for name, value in ALLOW.items() if name != part}
    assert field_refused(PolicyKind.IDENTITY, partial) == f"statements[0].{part}"


@pytest.mark.parametrize(
    "principal",
    [
        "",
        "a",
        "Acme",
        "x" * 33,
        "-acme",
        ACCOUNT.upper()[:-1],
        "acme*",
        "crn:iam::*:role/dev",
        f"crn:iam::{ACCOUNT}:role/*",
        f"crn:iam::{ACCOUNT}:role/",
        f"crn:iam::{ACCOUNT}:group/dev",
        f"crn:iam:eu:{ACCOUNT}:role/dev",
        "crn:iam::a:role/dev",
        "crn:iam::acme:user/dev",
        f"crn:registry::{ACCOUNT}:role/dev",
    ],
)
@pytest.mark.parametrize("kind", [REPOSITORY_RULES, PolicyKind.TRUST])
def test_principals_are_named_exactly(kind: PolicyKind | ResourceRules, principal: str) -> None:
    statement = {"effect": "deny", "principals": [principal], "actions": ["iam:AssumeRole"]}
    if kind is REPOSITORY_RULES:
        statement["actions"] = ["registry:PullImage"]
    assert field_refused(kind, statement) == "statements[0].principals"


@pytest.mark.parametrize(
    "principal",
    [
        ACCOUNT,
        "acme",
        "a1",
        "crn:iam::acme:role/dev.1",
        f"crn:iam::{ACCOUNT}:service-account/ci_x",
        f"crn:iam::{ACCOUNT}:user/{ACCOUNT}",
    ],
)
def test_principals_have_these_forms(principal: str) -> None:
    (statement,) = parse(REPOSITORY_RULES, SHARE | {"principals": [principal]}).statements
    assert statement.principals == {principal}


def test_the_public_may_only_pull() -> None:
    more = {"actions": ["registry:PullImage", "registry:PushImage"], "principals": ["*"]}
    assert field_refused(REPOSITORY_RULES, SHARE | more) == "statements[0].actions"
    parse(REPOSITORY_RULES, SHARE | more | {"effect": "deny"})
    parse(REPOSITORY_RULES, SHARE | {"principals": ["*", "acme"]})
    mixed = SHARE | {"actions": ["registry:DescribeImages"], "principals": ["*", "acme"]}
    assert field_refused(REPOSITORY_RULES, mixed) == "statements[0].actions"


@pytest.mark.parametrize("action", ["registry:DeleteImage", "registry:*", "*", "iam:AssumeRole"])
def test_a_resource_policy_speaks_of_images_only(action: str) -> None:
    assert field_refused(REPOSITORY_RULES, SHARE | {"actions": [action]}) == "statements[0].actions"


@pytest.mark.parametrize("field", ["resources", "principal", "not_actions"])
def test_a_resource_policy_names_no_resources_and_nothing_unknown(field: str) -> None:
    assert field_refused(REPOSITORY_RULES, SHARE | {field: ["*"]}) == f"statements[0].{field}"


def test_a_role_trusts_no_everyone_and_nothing_but_being_assumed() -> None:
    assert (
        field_refused(PolicyKind.TRUST, TRUST | {"principals": ["*"]}) == "statements[0].principals"
    )
    assert field_refused(PolicyKind.TRUST, TRUST | {"actions": ["*"]}) == "statements[0].actions"
    parse(PolicyKind.TRUST, TRUST | {"effect": "deny", "principals": ["*"]})


def conditions(**parts: object) -> Conditions:
    return parse(PolicyKind.IDENTITY, ALLOW | {"conditions": parts}).statements[0].conditions


def test_moments_are_exact_to_the_microsecond() -> None:
    """A float holds a moment only to within a fraction; these once came out one too few."""
    for text, moment in [
        ("1970-01-01T00:00:00Z", 0),
        ("2033-05-18T03:33:20.000007Z", 2_000_000_000_000_007),
        ("2033-05-18t05:33:20.999999+02:00", 2_000_000_000_999_999),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000_000),
    ]:
        assert conditions(date_before=text).date_before == moment


def test_mapped_addresses_are_the_addresses_they_map() -> None:
    inside = conditions(ip_address=["::ffff:10.0.0.0/104"])
    for text, expected in [("10.9.9.9", True), ("::ffff:10.9.9.9", True), ("11.0.0.1", False)]:
        assert inside.hold(ip_address(text), 0) is expected
    assert conditions(ip_address=["10.0.0.0/8"]).hold(ip_address("::ffff:10.0.0.1"), 0)
    assert not inside.hold(None, 0)
    assert conditions(not_ip_address=["10.0.0.0/8"]).hold(None, 0)


OTHER: Final = "01890000-0000-7000-8000-00000000000b"
DEV: Final = f"crn:iam::{ACCOUNT}:role/dev"
ON_ALL: Final = {"effect": "allow", "actions": ["*"], "resources": ["*"]}
INSIDER: Final = Caller(f"crn:iam::{ACCOUNT}:service-account/ci", ACCOUNT)
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
        (Caller(DEV, ACCOUNT), None, on_it(DEV), Verdict.ALLOWED),
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
    """`tests/property/test_policies` proves a decision's yes and no."""
    identity = [] if own is None else [parse(PolicyKind.IDENTITY, own)]
    resource = None if attached is None else parse(REPOSITORY_RULES, attached)
    crn = f"crn:registry:eu:{ACCOUNT}:repository/app"
    question = Question(caller, "registry:PullImage", crn, ACCOUNT, None, 0)
    assert decide(question, identity, resource) is verdict


VOCABULARY: Final = vocabulary(FAMILIES)


def check_named(action: str = "*", resource: str = "*") -> None:
    statement = {"effect": "deny", "actions": ["*", action], "resources": ["*", resource]}
    document = {"version": "1", "statements": [statement]}
    VOCABULARY.check(policy_of(document, PolicyKind.IDENTITY))


def names_refused(**named: str) -> dict[str, Any]:
    with pytest.raises(InvalidInput) as caught:
        check_named(**named)
    (value,) = named.values()
    assert caught.value.params["value"] == value
    assert value in caught.value.message
    assert all(each in caught.value.message for each in caught.value.params["suggestions"])
    return caught.value.params


@pytest.mark.parametrize(
    "action",
    [
        *("*", "iam:*", "registry:*", "registry:Pull*", "registry:PullImage", "iam:AssumeRole"),
        "notifications:Publish",
    ],
)
def test_an_action_that_exists_is_accepted(action: str) -> None:
    check_named(action=action)


@pytest.mark.parametrize(
    ("action", "nearest"),
    [
        ("registry:PulImage", "registry:PullImage"),
        ("registry:pullimage", "registry:PullImage"),
        ("registry:PullImages", "registry:PullImage"),
        ("registy:PushImage", "registry:PushImage"),
        ("iam:CreateRol", "iam:CreateRole"),
        ("registry:CreateRepositry*", "registry:CreateRepository"),
    ],
)
def test_an_action_that_does_not_exist_is_refused(action: str, nearest: str) -> None:
    params = names_refused(action=action)
    assert (params["field"], params["reason"]) == ("statements[0].actions", "unknown_action")
    assert params["suggestions"][0] == nearest


@pytest.mark.parametrize(
    ("pattern", "reason", "suggested", "more"),
    [
        ("registry:Pull*", "action_pattern", ["registry:PullImage"], ""),
        ("registry:*Image", "action_pattern", "registry:PullImage", ""),
        ("registry:*", "action_pattern", 12, " more; GET /v1/actions lists all"),
        ("*", "action_pattern", 12, " more; GET /v1/actions lists all"),
        ("registry:PulImage*", "unknown_action", "registry:PullImage", "did you mean"),
        ("weather:*", "unknown_action", [], "there is no action weather:*"),
        ("registry:PulImage", "unknown_action", "registry:PullImage", "did you mean"),
    ],
)
def test_a_pattern_where_an_action_is_asked_about_names_what_it_matches(
    pattern: str, reason: str, suggested: str | list[str] | int, more: str
) -> None:
    VOCABULARY.check_action("registry:PullImage", "actions")
    with pytest.raises(InvalidInput) as caught:
        VOCABULARY.check_action(pattern, "actions")
    params = caught.value.params
    assert (params["field"], params["reason"], params["value"]) == ("actions", reason, pattern)
    found = params["suggestions"]
    if isinstance(suggested, str):
        assert suggested in found
    else:
        assert suggested in (found, len(found))
    assert all(each in caught.value.message for each in (*found, more, pattern))


def test_a_family_that_does_not_exist_has_no_actions() -> None:
    assert names_refused(action="weather:*")["reason"] == "unknown_action"
    assert names_refused(action="registry:Zzz*")["suggestions"] == []


@pytest.mark.parametrize(
    "resource",
    [
        "*",
        "crn:notifications:eu:acme:topic/images",  # an event rule needs a right on its topic
        *("crn:*", "crn:reg*", "crn:registry:*", "crn:registry:*/web"),
        *("crn:registry:*:repository/web/*", "crn:*:*:*:repository/web"),
        "crn:registry:eu:acme:repository/web",
        f"crn:registry:eu:{ACCOUNT}:repository/*",
        "crn:registry:eu:acme:repo*",
        "crn:registry:eu:acme:*",
        "crn:registry:e?:*:reposito??/web",
        "crn:iam::acme:role/*",
        f"crn:iam::{ACCOUNT}:user/{ACCOUNT}",
    ],
)
def test_a_resource_that_can_exist_is_accepted(resource: str) -> None:
    check_named(resource=resource)


@pytest.mark.parametrize(
    ("resource", "nearest"),
    [
        (
            "crn:registry:eu:acme:repositories/web",
            "crn:registry:<region>:<account>:repository/<name>",
        ),
        ("crn:registry:*:repositry/web/*", "crn:registry:<region>:<account>:repository/<name>"),
        ("crn:registy:eu:acme:repository/web", "crn:registry:<region>:<account>:repository/<name>"),
        ("crn:iam::acme:roles/admin", "crn:iam::<account>:role/<name>"),
        ("crn:iam:eu:acme:role/admin", "crn:iam::<account>:role/<name>"),  # it has no region
        ("crn:registry::acme:repository/web", "crn:registry:<region>:<account>:repository/<name>"),
        ("crn:registry:eu::repository/web", "crn:registry:<region>:<account>:repository/<name>"),
        ("crn:registry:eu:ACME:repository/*", "crn:registry:<region>:<account>:repository/<name>"),
        ("crn:registry:eu:acme:repository/", "crn:registry:<region>:<account>:repository/<name>"),
        ("crn:registry:eu:acme:web", None),
        ("crn:registry:eu:acme:web*", None),
        ("crn:registry", None),
        ("crn:weather:*", None),
    ],
)
def test_a_resource_that_cannot_exist_is_refused(resource: str, nearest: str | None) -> None:
    params = names_refused(resource=resource)
    assert (params["field"], params["reason"]) == ("statements[0].resources", "unknown_resource")
    assert nearest is None or params["suggestions"][0] == nearest


def test_policies_of_resources_and_trust_suggest_too() -> None:
    statement = {"effect": "allow", "actions": ["registry:PulImage"], "principals": ["acme"]}
    with pytest.raises(InvalidInput, match="not registry:PulImage") as caught:
        policy_of({"version": "1", "statements": [statement]}, REPOSITORY_RULES)
    assert caught.value.params["suggestions"][0] == "registry:PullImage"
    statement["actions"] = ["iam:AsumeRole"]
    with pytest.raises(InvalidInput) as caught:
        policy_of({"version": "1", "statements": [statement]}, PolicyKind.TRUST)
    assert caught.value.params["suggestions"] == ["iam:AssumeRole"]


@pytest.mark.parametrize("template", VOCABULARY.templates, ids=lambda template: template.name)
def test_ready_made_policies_name_only_what_exists(template: PolicyTemplate) -> None:
    made = template.document(["web/*", "api", "web/*"], "eu", ACCOUNT)
    VOCABULARY.check(policy_of(made, PolicyKind.IDENTITY))
    named = made["statements"][0]["resources"]
    assert named == [f"crn:registry:eu:{ACCOUNT}:repository/{name}" for name in ("web/*", "api")]
    for wrong in ("", "web/", "/web", "Web", "a b", "web/**", "*web", "acme:web", "x" * 300):
        with pytest.raises(InvalidInput) as caught:
            template.document([wrong], "eu", ACCOUNT)
        assert caught.value.params["field"] == "names"
