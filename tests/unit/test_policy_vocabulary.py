"""What policies can name: unknown actions and resources are refused, and the nearest are named."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cloudcore.errors import InvalidInput
from cloudcore.family import vocabulary
from cloudcore.iam.policy import PolicyKind, policy_of
from cloudcore.iam.templates import PolicyTemplate
from registry.composition.families import FAMILIES
from registry.services.resource_kinds import REPOSITORY_RULES

VOCABULARY: Final = vocabulary(FAMILIES)
ACCOUNT: Final = "01890000-0000-7000-8000-00000000000a"


def check(action: str = "*", resource: str = "*") -> None:
    statement = {"effect": "deny", "actions": ["*", action], "resources": ["*", resource]}
    document = {"version": "1", "statements": [statement]}
    VOCABULARY.check(policy_of(document, PolicyKind.IDENTITY))


def refused(**named: str) -> dict[str, Any]:
    with pytest.raises(InvalidInput) as caught:
        check(**named)
    (value,) = named.values()
    assert caught.value.params["value"] == value
    assert value in caught.value.message
    assert all(each in caught.value.message for each in caught.value.params["suggestions"])
    return caught.value.params


@pytest.mark.parametrize(
    "action",
    [
        "*",
        "iam:*",
        "registry:*",
        "registry:Pull*",
        "registry:PullImage",
        "iam:AssumeRole",
        "notifications:Publish",
    ],
)
def test_an_action_that_exists_is_accepted(action: str) -> None:
    check(action=action)


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
    params = refused(action=action)
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
    assert refused(action="weather:*")["reason"] == "unknown_action"
    assert refused(action="registry:Zzz*")["suggestions"] == []


@pytest.mark.parametrize(
    "resource",
    [
        "*",
        "crn:notifications:eu:acme:topic/images",  # an event rule needs a right on its topic
        "crn:*",
        "crn:reg*",
        "crn:registry:*",
        "crn:registry:*/web",
        "crn:registry:*:repository/web/*",
        "crn:*:*:*:repository/web",
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
    check(resource=resource)


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
    params = refused(resource=resource)
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
