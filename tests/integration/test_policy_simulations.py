"""Simulations of policies, and the actions that are allowed: they say what the planes do."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx

from cloudcore.identity.rights import own_rights
from tests.integration.served_world import Served, Tenant
from tests.tenants import document

PATH: Final = "/v1/policy-simulations"
PULL = "registry:PullImage"
PUSH = "registry:PushImage"
LONG: Final = f"crn:registry:*:*:repository/{'a' * 200}"
KEYS: Final = ("decision", "identity", "resource")


def crn(tenant: Tenant, kind: str, name: str) -> str:
    service = "registry:local" if kind == "repository" else "iam:"
    return f"crn:{service}:{tenant.account_id}:{kind}/{name}"


def allow(*actions: str, on: str = "*", **more: object) -> dict[str, Any]:
    return {"effect": "allow", "actions": [*actions], "resources": [on], **more}


def let(*principals: str, effect: str = "allow") -> dict[str, Any]:
    return {"effect": effect, "actions": [PULL], "principals": [*principals]}


async def add_program(served: Served, *statements: dict[str, Any]) -> str:
    """Make the service account `ci` that may do this and no more; return its CRN."""
    await served.add_program("ci", *(statements or (allow("storage:GetObject"),)))
    return crn(served.acme, "service-account", "ci")


async def share(served: Served, *statements: dict[str, Any]) -> None:
    """Replace the policy of the repository `app`."""
    path = f"/v1/repositories/{served.acme.ids['/v1/repositories/{}']}/policy?force=true"
    answer = await served.ask("PUT", path, document(*statements), token=served.acme.program_token)
    assert answer.status_code == 200, answer.text


async def ask(
    served: Served, principal: str, *actions: str, on: str = "", status: int = 200, **more: object
) -> Any:  # noqa: ANN401 - the results, or the error
    resource = on or crn(served.acme, "repository", "app")
    body = {"principal": principal, "actions": actions, "resource": resource, **more}
    token = str(more.pop("token", "")) or served.acme.program_token
    body.pop("token", None)
    answer: httpx.Response = await served.ask("POST", PATH, body, token=token)
    assert answer.status_code == status, answer.text
    return answer.json()["simulation"]["results"] if status == 200 else answer.json()["error"]


async def decision(served: Served, principal: str, action: str, **more: Any) -> str:  # noqa: ANN401
    """Return the decision, and what the policies of the principal and of the resource say."""
    (found,) = await ask(served, principal, action, **more)
    return " ".join(found[key] for key in KEYS)


async def test_the_statements_that_decide_are_told(served: Served) -> None:
    net = {"conditions": {"ip_address": ["10.0.0.0/8"]}}
    ci = await add_program(
        served,
        allow("registry:Describe*"),
        allow(PULL, on="crn:registry:*:acme:repository/a*", sid="Pulls"),
        {**allow(PULL), "effect": "deny", **net},
        allow(PUSH, conditions={"date_after": "2040-01-01T00:00:00Z"}),
    )
    await share(served, let("globex"))
    pull, push, delete = await ask(served, ci, PULL, PUSH, "registry:DeleteImage")
    assert [pull[key] for key in KEYS] == ["allowed", "allow", "none"]
    (statement,) = pull["statements"]
    assert (statement["source"], statement["index"], statement["sid"]) == ("identity", 1, "Pulls")
    assert (statement["policy"]["name"], statement["effect"]) == ("ci", "allow")
    for refused in (push, delete):
        assert [refused[key] for key in KEYS] == ["implicitly_denied", "none", "none"]
        assert refused["statements"] == []

    (denied,) = await ask(served, ci, PULL, source_ip="10.1.2.3")
    assert [denied[key] for key in KEYS] == ["denied", "deny", "unknown"]
    assert denied["statements"][0]["index"] == 2
    assert await decision(served, ci, PUSH, time="2041-01-01T00:00:00Z") == "allowed allow none"

    await share(served, let(ci, effect="deny"))
    (denied,) = await ask(served, ci, PULL)
    assert [denied[key] for key in KEYS] == ["denied", "allow", "deny"]
    own = denied["statements"][1]
    assert (own["source"], own["policy"], own["effect"]) == ("resource", None, "deny")
    assert await decision(served, ci, PULL, resource_policy=None) == "allowed allow none"
    tried = [document(allow(PUSH))]
    assert await decision(served, ci, PUSH, policies=tried) == "allowed allow none"
    assert await decision(served, ci, PULL, policies=[]) == "denied none deny"


async def test_halves_of_other_accounts_are_unknown_unless_given(served: Served) -> None:
    """Whether or not the other account, its repository or its principal exists."""
    acme, globex = served.acme, served.globex
    ci = await add_program(served, allow(PULL))
    theirs = (crn(globex, "repository", "app"), crn(globex, "repository", "absent"))
    for resource in (*theirs, "crn:registry:local:nobody:repository/app"):
        (found,) = await ask(served, ci, PULL, on=resource)
        assert [found[key] for key in KEYS] == ["unknown", "allow", "unknown"]
        assert await decision(served, ci, PUSH, on=resource) == "implicitly_denied none unknown"
        asked = {"principal": ci, "actions": [PULL], "resource": resource}
        answer = await served.ask("POST", PATH, asked, token=acme.program_token)
        assert answer.json()["simulation"]["resource"] == resource
    given = {"resource_policy": document(let("acme"))}
    assert await decision(served, ci, PULL, on=theirs[0], **given) == "allowed allow allow"

    await share(served, let("globex"))
    for name in ("program", "absent"):
        partner = crn(globex, "service-account", name)
        assert await decision(served, partner, PULL) == "unknown unknown allow"
        assert (
            await decision(served, partner, PULL, policies=[document(allow(PULL))])
            == "allowed allow allow"
        )
        assert await decision(served, partner, PUSH) == "implicitly_denied unknown none"
    assert await decision(served, "*", PULL) == "implicitly_denied none none"
    await share(served, let("*"))
    assert await decision(served, "*", PULL) == "allowed none allow"

    both = await ask(served, partner, PULL, on=theirs[0], status=400)
    assert both["params"]["reason"] == "foreign_account"


async def test_nothing_tells_whether_another_account_has_a_handle(served: Served) -> None:
    """Whatever is tried: policies that are stored or given, with names or patterns of names."""
    ci = await add_program(
        served,
        allow(PULL, on="crn:registry:local:globex:repository/*"),
        allow(PUSH, on="crn:registry:local:absent:repository/*"),
        allow(PUSH, on="crn:registry:local:globe?:repository/*"),
    )
    await share(
        served,
        let("globex", "absent"),
        let("crn:iam::globex:role/r", "crn:iam::absent:role/r", effect="deny"),
    )
    own = crn(served.acme, "repository", "app")
    partner, theirs = "crn:iam::HANDLE:role/role", "crn:registry:local:HANDLE:repository/app"
    named = document(let("HANDLE", "crn:iam::HANDLE:role/role"))
    pulls = document(allow(PULL, on="crn:registry:*:HANDLE:repository/*"))
    named_so = crn(served.acme, "object", "b/a:HANDLE:object/b")
    within = "crn:*:*:HANDLE:object/b"
    many = {**allow(PULL), "resources": ["crn:iam::HANDLE:role/?"] * 100}
    costly = [document(*[many] * 7)] * 2
    malformed = document(allow(PULL, on="crn:registry::HANDLE:repository/app"))
    for asked in (
        {"principal": partner, "resource": own},
        {"principal": partner, "resource": own, "resource_policy": named},
        {"principal": partner, "resource": own, "policies": [document(allow(PULL))]},
        {"principal": ci, "resource": theirs},
        {"principal": ci, "resource": theirs, "resource_policy": named},
        {"principal": ci, "resource": theirs, "policies": [pulls]},
        {"principal": partner, "resource": theirs},
        {"principal": ci, "resource": named_so, "policies": [document(allow("*", on=within))]},
        {"principal": ci, "resource": own, "policies": costly},
        {"principal": ci, "resource": own, "policies": [malformed]},
    ):
        told = set()
        for handle in ("globex", "absent"):
            body = json.dumps({**asked, "actions": [PULL, PUSH]}).replace("HANDLE", handle)
            answer = await served.ask(
                "POST",
                PATH,
                body.encode(),
                token=served.acme.program_token,
                headers={"Content-Type": "application/json"},
            )
            assert answer.status_code in (200, 400), answer.text
            text = answer.text
            if answer.status_code == 400:
                text = json.dumps({**answer.json()["error"], "request_id": ""})
            told.add((answer.status_code, text.replace(handle, "HANDLE")))
        assert len(told) == 1, told


async def test_a_role_is_assumed_only_if_permission_and_trust_agree(served: Served) -> None:
    ci = await add_program(served, allow("iam:AssumeRole"))
    role, assume = crn(served.acme, "role", "role"), "iam:AssumeRole"
    assert await decision(served, ci, assume, on=role) == "allowed allow allow"
    assert (
        await decision(served, ci, assume, on=role, policies=[]) == "implicitly_denied none allow"
    )
    nobody = {"resource_policy": document({"effect": "allow", "principals": ["globex"]})}
    assert await decision(served, ci, assume, on=role, **nobody) == "implicitly_denied allow none"


async def test_a_simulation_is_what_the_planes_do(served: Served) -> None:
    """The right to simulate is asked of the principal, the resource's policy of its reader."""
    acme = served.acme
    ci = crn(acme, "service-account", "ci")
    own = await served.token_that_may(
        allow("iam:SimulatePolicy", on=ci), allow("registry:GetAuthorizationToken", PULL), name="ci"
    )
    (found,) = await ask(served, ci, "registry:GetAuthorizationToken", token=own)
    assert found["decision"] == "allowed"
    assert (await served.ask("POST", "/v1/authorization-token", token=own)).status_code == 200
    for action in ("registry:DescribeRepositories", "iam:ListRoles"):
        assert await decision(served, ci, action, token=own) == "implicitly_denied none none"
    for path in ("/v1/repositories", "/v1/roles"):
        assert (await served.ask("GET", path, token=own)).status_code == 403

    refused = await ask(served, ci, PULL, token=own, status=403)
    assert "registry:GetRepositoryPolicy" in refused["message"]
    for principal in (crn(acme, "service-account", "program"), "*"):
        refused = await ask(served, principal, PULL, token=own, status=403)
        assert "iam:SimulatePolicy" in refused["message"]


async def test_a_name_in_a_policy_means_who_had_it_when_the_policy_was_written(
    served: Served,
) -> None:
    ci = await add_program(served)
    await share(served, let(ci))
    assert await decision(served, ci, PULL) == "allowed none allow"
    token = served.acme.program_token
    for kind in ("service-accounts", "policies"):
        rows = (await served.ask("GET", f"/v1/{kind}?name=ci", token=token)).json()
        ((found,),) = (rows[each] for each in rows if each != "meta")
        gone = await served.ask("DELETE", f"/v1/{kind}/{found['id']}?force=true", token=token)
        assert gone.status_code == 204, gone.text
    other = await served.token_that_may(allow("storage:GetObject"), name="ci")
    assert await decision(served, ci, PULL) == "implicitly_denied none none"
    app = {"resource": crn(served.acme, "repository", "app"), "actions": [PULL]}
    (told,) = await allowed_to(served, other, app)
    assert told["actions"] == []
    await share(served, let(ci))  # written anew, it means the new one
    (told,) = await allowed_to(served, other, app)
    assert told["actions"] == [PULL]


async def test_what_cannot_be_simulated_is_refused(served: Served) -> None:
    acme = served.acme
    ci = await add_program(served)
    person = f"crn:iam::{acme.person.organization_id}:user/{acme.person.id}"
    assert "name the role" in (await ask(served, person, PULL, status=400))["message"]
    await ask(served, crn(acme, "role", "absent"), PULL, status=404)
    for field, more in (
        ("actions", {"actions": ["registry:PulImage"]}),
        ("actions", {"actions": ["registry:*"]}),
        ("actions", {"actions": []}),
        ("actions", {"actions": [PULL] * 51}),
        ("resource", {"resource": "crn:registry:local:acme:repo/app"}),
        ("actions", {"actions": ["registry:*"]}),
        ("resource", {"resource": "app"}),
        ("principal", {"principal": "ci"}),
        ("principal", {"principal": "crn:iam::acme:policy/ci"}),
        ("principal", {"principal": "crn:iam:local:acme:role/ci"}),
        ("source_ip", {"source_ip": "10.0.0.0/8"}),
        ("time", {"time": "2040-01-01T00:00:00"}),
        ("statements", {"policies": [{"version": "1"}]}),
        ("policies", {"policies": [document(*[allow(PULL, on=LONG)] * 20)] * 10}),
        ("statements", {"resource_policy": {"version": "1"}}),
        ("resource_policy", {"resource": f"{ci}", "resource_policy": None}),
    ):
        body = {
            "principal": ci,
            "actions": [PULL],
            "resource": "crn:registry:local:acme:repository/app",
        }
        answer = await served.ask("POST", PATH, body | more, token=acme.program_token)
        assert answer.status_code == 400, (field, answer.text)
        assert answer.json()["error"]["params"]["field"].startswith(field), answer.text
    for written, reason in (  # as of policies that are stored
        (allow("registry:PulImage"), "unknown_action"),
        (allow(PULL, on="crn:registry::acme:repository/app"), "unknown_resource"),
    ):
        refused = await ask(served, ci, PULL, status=400, policies=[document(written)])
        assert refused["params"]["reason"] == reason


ALLOWED: Final = "/v1/allowed-actions"
CREATE = "registry:CreateRepository"


async def allowed_to(
    served: Served, token: str, *questions: dict[str, Any]
) -> list[dict[str, Any]]:
    answer = await served.ask("POST", ALLOWED, {"questions": [*questions]}, token=token)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["allowed_actions"])


async def test_a_caller_learns_what_it_may_do(served: Served) -> None:
    acme = served.acme
    token = await served.token_that_may(
        allow("iam:*", on="crn:iam::acme:role/*"),
        {**allow("iam:DeleteRole", on="crn:iam::acme:role/ops"), "effect": "deny"},
        allow(PULL),
    )
    named = [crn(acme, "role", "ops"), "crn:iam::acme:role/other", crn(acme, "policy", "any")]
    actions = ["iam:DeleteRole", "iam:UpdateRole", PUSH]
    told = await allowed_to(
        served, token, *({"resource": each, "actions": actions} for each in named)
    )
    assert told == [
        {"resource": named[0], "actions": ["iam:UpdateRole"]},
        {"resource": named[1], "actions": ["iam:DeleteRole", "iam:UpdateRole"]},
        {"resource": named[2], "actions": []},
    ]
    (everything,) = await allowed_to(served, acme.program_token, {"resource": named[0]})
    assert {"iam:AssignRole", "iam:ListRoles"} <= {*everything["actions"]}
    assert "iam:DeletePolicy" not in everything["actions"]
    assert "iam:AssumeRole" not in everything["actions"]  # the trust policy must allow it too


async def test_what_is_allowed_on_some_names_is_told_apart(served: Served) -> None:
    below = f"crn:registry:*:{served.acme.account_id}:repository"
    token = await served.token_that_may(
        allow(CREATE, on=f"{below}/web/*"),
        allow(PULL, on=f"{below}/*"),
        {**allow(PULL, on=f"{below}/secret/*"), "effect": "deny"},
        allow(PUSH),
        {**allow(PUSH, on=f"{below}/*"), "effect": "deny"},
        allow("registry:DeleteImage", on="crn:registry:*repository/team-?/app"),
        allow("registry:*", on="crn:registry:*:*:event-rule/*"),
    )
    everything = {"resource": crn(served.acme, "repository", "*")}
    (told,) = await allowed_to(served, token, everything)
    assert told["actions"] == [PULL]
    assert told["on_some"] == [CREATE, "registry:DeleteImage", PULL]
    web = {"resource": crn(served.acme, "repository", "web/new"), "actions": [CREATE, PUSH]}
    (told,) = await allowed_to(served, token, web)
    assert (told["actions"], "on_some" in told) == ([CREATE], False)


async def test_the_policy_of_a_repository_counts(served: Served) -> None:
    ci = await add_program(served)
    await share(served, let(ci), let(served.acme.account_id, effect="deny"))
    app = {"resource": crn(served.acme, "repository", "app"), "actions": [PULL, PUSH]}
    (told,) = await allowed_to(served, served.acme.program_token, app)
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
        answer = await served.ask("POST", ALLOWED, {"questions": [question]}, token=token)
        assert answer.status_code == 400, question
        assert answer.json()["error"]["params"]["reason"] == reason, answer.text
        assert served.globex.account_id not in answer.text
    many = {"questions": [{"resource": own}] * 101}
    assert (await served.ask("POST", ALLOWED, many, token=token)).status_code == 400
    person = await served.ask("POST", ALLOWED, {"questions": [{"resource": own}]}, token="")
    assert person.status_code == 401
    person = await served.ask(
        "POST", ALLOWED, {"questions": [{"resource": own}]}, token=served.acme.person_token
    )
    assert person.status_code == 403


async def test_one_request_has_a_budget(served: Served, monkeypatch: Any) -> None:  # noqa: ANN401
    monkeypatch.setattr(own_rights, "REQUEST_STEPS", 5000)
    questions = [{"resource": crn(served.acme, "repository", "*")}] * 10
    body = {"questions": questions}
    answer = await served.ask("POST", ALLOWED, body, token=served.acme.program_token)
    assert answer.status_code == 403
    assert "ask about fewer resources at once" in answer.json()["error"]["message"]
