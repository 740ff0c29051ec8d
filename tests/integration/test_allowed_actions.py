"""``/v1/allowed-actions`` tells what the planes then do."""

from __future__ import annotations

from typing import Any, Final

from cloudcore.identity.rights import own_rights
from tests.integration.served_world import Served
from tests.integration.written_policies import add_program, allow, crn, let, share

PATH: Final = "/v1/allowed-actions"
CREATE, PULL, PUSH = (f"registry:{each}" for each in ("CreateRepository", "PullImage", "PushImage"))


async def token_of(served: Served, *statements: dict[str, Any]) -> str:
    """Return the access token of a program with these rights."""
    admin = served.acme.program_token
    await add_program(served, *statements)
    listed = (await served.ask("GET", "/v1/service-accounts", token=admin)).json()
    (owner,) = (each for each in listed["service_accounts"] if each["name"] == "ci")
    key = await served.make(f"/v1/service-accounts/{owner['id']}/access-keys", {}, token=admin)
    return await served.program_token(key["access_key_id"], key["secret_access_key"])


async def ask(served: Served, token: str, *questions: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await served.ask("POST", PATH, {"questions": [*questions]}, token=token)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["allowed_actions"]
    return found


async def test_a_caller_learns_what_it_may_do(served: Served) -> None:
    acme = served.acme
    token = await token_of(
        served,
        allow("iam:*", on="crn:iam::acme:role/*"),
        {**allow("iam:DeleteRole", on="crn:iam::acme:role/ops"), "effect": "deny"},
        allow(PULL),
    )
    named = [crn(acme, "role", "ops"), "crn:iam::acme:role/other", crn(acme, "policy", "any")]
    actions = ["iam:DeleteRole", "iam:UpdateRole", PUSH]
    told = await ask(served, token, *({"resource": each, "actions": actions} for each in named))
    assert told == [
        {"resource": named[0], "actions": ["iam:UpdateRole"]},
        {"resource": named[1], "actions": ["iam:DeleteRole", "iam:UpdateRole"]},
        {"resource": named[2], "actions": []},
    ]
    (everything,) = await ask(served, acme.program_token, {"resource": named[0]})
    assert {"iam:AssignRole", "iam:ListRoles"} <= {*everything["actions"]}
    assert "iam:DeletePolicy" not in everything["actions"]
    assert "iam:AssumeRole" not in everything["actions"]  # the trust policy must allow it too


async def test_what_is_allowed_on_some_names_is_told_apart(served: Served) -> None:
    below = f"crn:registry:*:{served.acme.account_id}:repository"
    token = await token_of(
        served,
        allow(CREATE, on=f"{below}/web/*"),
        allow(PULL, on=f"{below}/*"),
        {**allow(PULL, on=f"{below}/secret/*"), "effect": "deny"},
        allow(PUSH),
        {**allow(PUSH, on=f"{below}/*"), "effect": "deny"},
        allow("registry:DeleteImage", on="crn:registry:*repository/team-?/app"),
        allow("registry:*", on="crn:registry:*:*:event-rule/*"),
    )
    everything = {"resource": crn(served.acme, "repository", "*")}
    (told,) = await ask(served, token, everything)
    assert told["actions"] == [PULL]
    assert told["on_some"] == [CREATE, "registry:DeleteImage", PULL]
    web = {"resource": crn(served.acme, "repository", "web/new"), "actions": [CREATE, PUSH]}
    (told,) = await ask(served, token, web)
    assert (told["actions"], "on_some" in told) == ([CREATE], False)


async def test_the_policy_of_a_repository_counts(served: Served) -> None:
    ci = await add_program(served)
    await share(served, let(ci), let(served.acme.account_id, effect="deny"))
    app = {"resource": crn(served.acme, "repository", "app"), "actions": [PULL, PUSH]}
    (told,) = await ask(served, served.acme.program_token, app)
    assert told["actions"] == [PUSH]


async def test_what_cannot_be_asked_is_refused(served: Served) -> None:
    own, token = crn(served.acme, "role", "admin"), served.acme.program_token
    for question, reason in (
        ({"resource": "role/admin"}, "malformed_crn"),
        ({"resource": crn(served.acme, "cupboard", "x")}, "unknown_resource"),
        ({"resource": crn(served.globex, "role", "admin")}, "foreign_account"),
        ({"resource": "crn:iam::nobody:role/admin"}, "foreign_account"),
        ({"resource": "crn:iam::globex:cupboard/x"}, "foreign_account"),
        ({"resource": own, "actions": ["iam:Fly"]}, "unknown_action"),
        ({"resource": own, "actions": ["iam:Create*"]}, "action_pattern"),
        ({"resource": own, "actions": []}, "out_of_range"),
    ):
        answer = await served.ask("POST", PATH, {"questions": [question]}, token=token)
        assert answer.status_code == 400, question
        assert answer.json()["error"]["params"]["reason"] == reason, answer.text
        assert served.globex.account_id not in answer.text
    many = {"questions": [{"resource": own}] * 101}
    assert (await served.ask("POST", PATH, many, token=token)).status_code == 400
    person = await served.ask("POST", PATH, {"questions": [{"resource": own}]}, token="")
    assert person.status_code == 401
    person = await served.ask(
        "POST", PATH, {"questions": [{"resource": own}]}, token=served.acme.person_token
    )
    assert person.status_code == 403


async def test_one_request_has_a_budget(served: Served, monkeypatch: Any) -> None:  # noqa: ANN401
    monkeypatch.setattr(own_rights, "_STEPS", 5000)
    questions = [{"resource": crn(served.acme, "repository", "*")}] * 10
    body = {"questions": questions}
    answer = await served.ask("POST", PATH, body, token=served.acme.program_token)
    assert answer.status_code == 403
    assert "ask about fewer resources at once" in answer.json()["error"]["message"]
