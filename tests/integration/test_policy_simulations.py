"""Simulations of policies: they say what the planes do, and which statements decide."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx

from tests.integration.served_world import Served
from tests.integration.written_policies import PULL, add_program, allow, crn, let, say, share

PATH: Final = "/v1/policy-simulations"
PUSH = "registry:PushImage"
KEYS: Final = ("decision", "identity", "resource")


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


async def decision(served: Served, principal: str, action: str, **more: Any) -> tuple[str, ...]:  # noqa: ANN401
    (found,) = await ask(served, principal, action, **more)
    return tuple(found[key] for key in KEYS)


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
    assert (statement["policy"]["name"], statement["effect"]) == ("of-ci", "allow")
    for refused in (push, delete):
        assert [refused[key] for key in KEYS] == ["implicitly_denied", "none", "none"]
        assert refused["statements"] == []

    (denied,) = await ask(served, ci, PULL, source_ip="10.1.2.3")
    assert [denied[key] for key in KEYS] == ["denied", "deny", "unknown"]
    assert denied["statements"][0]["index"] == 2
    assert await decision(served, ci, PUSH, time="2041-01-01T00:00:00Z") == (
        ("allowed", "allow", "none")
    )

    await share(served, let(ci, effect="deny"))
    (denied,) = await ask(served, ci, PULL)
    assert [denied[key] for key in KEYS] == ["denied", "allow", "deny"]
    own = denied["statements"][1]
    assert (own["source"], own["policy"], own["effect"]) == ("resource", None, "deny")
    assert await decision(served, ci, PULL, resource_policy=None) == ("allowed", "allow", "none")
    tried = [say(allow(PUSH))]
    assert await decision(served, ci, PUSH, policies=tried) == ("allowed", "allow", "none")
    assert await decision(served, ci, PULL, policies=[]) == ("denied", "none", "deny")


async def test_halves_of_other_accounts_are_unknown_unless_given(served: Served) -> None:
    """Whether or not the other account, its repository or its principal exists."""
    acme, globex = served.acme, served.globex
    ci = await add_program(served, allow(PULL))
    theirs = (crn(globex, "repository", "app"), crn(globex, "repository", "absent"))
    for resource in (*theirs, "crn:registry:local:nobody:repository/app"):
        (found,) = await ask(served, ci, PULL, on=resource)
        assert [found[key] for key in KEYS] == ["unknown", "allow", "unknown"]
        assert await decision(served, ci, PUSH, on=resource) == (
            ("implicitly_denied", "none", "unknown")
        )
        simulation = (
            await served.ask(
                "POST",
                PATH,
                {"principal": ci, "actions": [PULL], "resource": resource},
                token=acme.program_token,
            )
        ).json()["simulation"]
        assert simulation["resource"] == resource
    given = {"resource_policy": say(let("acme"))}
    assert await decision(served, ci, PULL, on=theirs[0], **given) == (
        ("allowed", "allow", "allow")
    )

    await share(served, let("globex"))
    for name in ("program", "absent"):
        partner = crn(globex, "service-account", name)
        assert await decision(served, partner, PULL) == ("unknown", "unknown", "allow")
        assert await decision(served, partner, PULL, policies=[say(allow(PULL))]) == (
            ("allowed", "allow", "allow")
        )
        assert await decision(served, partner, PUSH) == ("implicitly_denied", "unknown", "none")
    assert await decision(served, "*", PULL) == ("implicitly_denied", "none", "none")
    await share(served, let("*"))
    assert await decision(served, "*", PULL) == ("allowed", "none", "allow")

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
    named = say(let("HANDLE", "crn:iam::HANDLE:role/role"))
    pulls = say(allow(PULL, on="crn:registry:*:HANDLE:repository/*"))
    named_so = crn(served.acme, "object", "b/a:HANDLE:object/b")
    within = "crn:*:*:HANDLE:object/b"
    many = {**allow(PULL), "resources": ["crn:iam::HANDLE:role/?"] * 100}
    costly = [say(*[many] * 7)] * 2
    malformed = say(allow(PULL, on="crn:registry::HANDLE:repository/app"))
    for asked in (
        {"principal": partner, "resource": own},
        {"principal": partner, "resource": own, "resource_policy": named},
        {"principal": partner, "resource": own, "policies": [say(allow(PULL))]},
        {"principal": ci, "resource": theirs},
        {"principal": ci, "resource": theirs, "resource_policy": named},
        {"principal": ci, "resource": theirs, "policies": [pulls]},
        {"principal": partner, "resource": theirs},
        {"principal": ci, "resource": named_so, "policies": [say(allow("*", on=within))]},
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
    assert await decision(served, ci, assume, on=role) == ("allowed", "allow", "allow")
    assert await decision(served, ci, assume, on=role, policies=[]) == (
        ("implicitly_denied", "none", "allow")
    )
    nobody = {"resource_policy": say({"effect": "allow", "principals": ["globex"]})}
    assert await decision(served, ci, assume, on=role, **nobody) == (
        ("implicitly_denied", "allow", "none")
    )


async def test_a_simulation_is_what_the_planes_do(served: Served) -> None:
    """The right to simulate is asked of the principal, the resource's policy of its reader."""
    acme, token = served.acme, served.acme.program_token
    ci = await add_program(
        served,
        allow("iam:SimulatePolicy", on=crn(acme, "service-account", "ci")),
        allow("registry:GetAuthorizationToken", PULL),
    )
    (program,) = [
        each
        for each in (await served.ask("GET", "/v1/service-accounts", token=token)).json()[
            "service_accounts"
        ]
        if each["crn"] == ci
    ]
    key = await served.make(f"/v1/service-accounts/{program['id']}/access-keys", {}, token=token)
    form = httpx.QueryParams(
        {
            "grant_type": "client_credentials",
            "client_id": key["access_key_id"],
            "client_secret": key["secret_access_key"],
        }
    )
    granted = await served.submit("/v1/oauth/token", str(form))
    own = granted.json()["access_token"]

    (found,) = await ask(served, ci, "registry:GetAuthorizationToken", token=own)
    assert found["decision"] == "allowed"
    assert (await served.ask("POST", "/v1/authorization-token", token=own)).status_code == 200
    for action in ("registry:DescribeRepositories", "iam:ListRoles"):
        assert await decision(served, ci, action, token=own) == (
            ("implicitly_denied", "none", "none")
        )
    for path in ("/v1/repositories", "/v1/roles"):
        assert (await served.ask("GET", path, token=own)).status_code == 403

    refused = await ask(served, ci, PULL, token=own, status=403)
    assert "registry:GetRepositoryPolicy" in refused["message"]
    for principal in (crn(acme, "service-account", "program"), "*"):
        refused = await ask(served, principal, PULL, token=own, status=403)
        assert "iam:SimulatePolicy" in refused["message"]


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
        ("source_ip", {"source_ip": "10.0.0.0/8"}),
        ("time", {"time": "2040-01-01T00:00:00"}),
        ("statements", {"policies": [{"version": "1"}]}),
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


async def test_given_policies_name_what_exists_as_stored_ones_do(served: Served) -> None:
    ci = await add_program(served)
    for written, reason in (
        (allow("registry:PulImage"), "unknown_action"),
        (allow(PULL, on="crn:registry::acme:repository/app"), "unknown_resource"),
    ):
        refused = await ask(served, ci, PULL, status=400, policies=[say(written)])
        assert refused["params"]["reason"] == reason
