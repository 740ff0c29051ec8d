"""Ways up that must not be: each begins with some rights and asks for more."""

from __future__ import annotations

import pytest

from tests.identity_world import ALLOW_ALL, World

DOCUMENT = {"version": "1", "statements": [ALLOW_ALL]}


def allow(*actions: str, resources: tuple[str, ...] = ("*",)) -> dict[str, object]:
    return {"effect": "allow", "actions": [*actions], "resources": [*resources]}


async def is_admin(world: World, token: str) -> bool:
    answer = await world.ask("POST", "/v1/service-accounts", {"name": f"by-{token}"}, token=token)
    return answer.status_code == 201


async def test_making_a_policy_is_not_attaching_it(identity: World) -> None:
    await identity.program("writer", allow("iam:CreatePolicy", "iam:ListPolicies"))
    policy = await identity.make(
        "/v1/policies", {"name": "all", "document": DOCUMENT}, token="writer"
    )
    path = f"/v1/policies/{policy['id']}/attachments"
    answer = await identity.ask("POST", path, {"service_account": "writer"}, token="writer")
    assert answer.status_code == 403
    admin = f"/v1/policies/{identity.acme.policy_id}"
    answer = await identity.ask("PATCH", admin, {"document": DOCUMENT}, token="writer")
    assert answer.status_code == 403
    assert not await is_admin(identity, "writer")


async def test_a_policy_of_another_account_is_attached_nowhere(identity: World) -> None:
    await identity.program("ci")
    path = f"/v1/policies/{identity.globex.policy_id}/attachments"
    answer = await identity.ask("POST", path, {"service_account": "ci"})
    assert answer.status_code == 404
    assert not await is_admin(identity, "ci")


async def test_a_key_for_another_program_needs_the_right_on_it(identity: World) -> None:
    own = f"crn:iam::{identity.acme.account_id}:service-account/self"
    found = await identity.program(
        "self", allow("iam:CreateAccessKey", "iam:UpdateServiceAccount", resources=(own,))
    )
    admin = identity.principals["admin"].id
    stranger = identity.principals["stranger"].id
    for target, status in ((found.id, 201), (admin, 403), (stranger, 404)):
        path = f"/v1/service-accounts/{target}/access-keys"
        assert (await identity.ask("POST", path, token="self")).status_code == status
    path = f"/v1/service-accounts/{admin}"
    answer = await identity.ask("PATCH", path, {"status": "suspended"}, token="self")
    assert answer.status_code == 403


async def test_a_role_is_not_made_to_trust_its_finder(identity: World) -> None:
    own = f"crn:iam::{identity.acme.account_id}:role/own-*"
    await identity.program("maker", allow("iam:CreateRole", resources=(own,)))
    await identity.program("changer", allow("iam:UpdateRole", "iam:AssignRole", resources=(own,)))
    trust = {
        "version": "1",
        "statements": [{"effect": "allow", "principals": [identity.principals["changer"].crn]}],
    }
    body = {"name": "own-1", "trust_policy": trust}
    made = await identity.make("/v1/roles", body, token="maker")
    answer = await identity.ask("POST", "/v1/roles", body | {"name": "admin-2"}, token="maker")
    assert answer.status_code == 403
    for role_id, status in (
        (made["id"], 200),
        (identity.acme.role_id, 403),
        (identity.globex.role_id, 404),
    ):
        change = {"trust_policy": trust}
        path = f"/v1/roles/{role_id}"
        answer = await identity.ask("PATCH", path, change, token="changer")
        assert answer.status_code == status
    path = f"/v1/roles/{identity.acme.role_id}/assignments"
    person = {"user": identity.acme.person.id}
    assert (await identity.ask("POST", path, person, token="changer")).status_code == 403


async def test_a_guest_of_an_organization_gains_no_right_in_its_accounts(identity: World) -> None:
    organization = f"/v1/organizations/{identity.acme.organization_id}"
    await identity.join("outsider", role="owner")
    assert (await identity.ask("PATCH", organization, {}, token="outsider")).status_code == 200
    for path in ("/v1/roles", "/v1/policies", "/v1/service-accounts"):
        assert (await identity.ask("GET", path, token="outsider")).status_code == 403
        assert (await identity.ask("POST", path, {}, token="outsider")).status_code == 403
    role = {"user": identity.globex.person.id}
    assignments = f"/v1/roles/{identity.acme.role_id}/assignments"
    assert (await identity.ask("POST", assignments, role, token="outsider")).status_code == 403


async def test_rights_over_the_name_of_another_account_are_none(identity: World) -> None:
    """A statement may name a foreign account; nothing follows without that account's word."""

    foreign = f"crn:iam::{identity.globex.account_id}:*"
    await identity.program("far", allow("*", resources=(foreign, "crn:iam::globex:role/admin")))
    for path in (
        f"/v1/roles/{identity.globex.role_id}",
        f"/v1/policies/{identity.globex.policy_id}",
        f"/v1/accounts/{identity.globex.account_id}",
        f"/v1/users/{identity.globex.person.id}",
    ):
        for method in ("GET", "DELETE"):
            answer = await identity.ask(method, path, token="far")
            is_on_people = method == "DELETE" and path.startswith("/v1/users/")
            assert answer.status_code in ((403,) if is_on_people else (404, 405)), path
    assert (await identity.ask("GET", "/v1/roles", token="far")).status_code == 403


@pytest.mark.parametrize("name", ["admin", "stranger"])
async def test_who_lost_a_right_gets_no_replay(identity: World, name: str) -> None:
    """Permission is asked before the recorded answer, secret and all, comes again."""

    tenant = identity.acme if name == "admin" else identity.globex
    await identity.program("ci", allow("iam:CreateAccessKey"), tenant=tenant)
    path = f"/v1/service-accounts/{identity.principals['ci'].id}/access-keys"
    first = await identity.ask("POST", path, token="ci", key="k")
    assert first.status_code == 201
    assert (await identity.ask("POST", path, token="ci", key="k")).content == first.content
    (policy,) = [
        each
        for each in (await identity.ask("GET", "/v1/policies", token=name)).json()["policies"]
        if each["name"] == "of-ci"
    ]
    deny = {"version": "1", "statements": [allow("*") | {"effect": "deny"}]}
    changed = f"/v1/policies/{policy['id']}"
    assert (await identity.ask("PATCH", changed, {"document": deny}, token=name)).is_success
    assert (await identity.ask("POST", path, token="ci", key="k")).status_code == 403
    other = await identity.ask("POST", path, token=name, key="k")
    assert other.json() != first.json()
