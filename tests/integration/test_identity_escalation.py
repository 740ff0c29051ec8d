"""Ways up that must not be: each begins with some rights and asks for more."""

from __future__ import annotations

import pytest

from tests.identity_world import ALLOW_ALL, World, play

DOCUMENT = {"version": "1", "statements": [ALLOW_ALL]}


def allow(*actions: str, resources: tuple[str, ...] = ("*",)) -> dict[str, object]:
    return {"effect": "allow", "actions": [*actions], "resources": [*resources]}


async def is_admin(world: World, token: str) -> bool:
    answer = await world.ask("POST", "/v1/service-accounts", {"name": f"by-{token}"}, token=token)
    return answer.status_code == 201


def test_making_a_policy_is_not_attaching_it(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.program("writer", allow("iam:CreatePolicy", "iam:ListPolicies"))
        policy = await world.make(
            "/v1/policies", {"name": "all", "document": DOCUMENT}, token="writer"
        )
        path = f"/v1/policies/{policy['id']}/attachments"
        answer = await world.ask("POST", path, {"service_account": "writer"}, token="writer")
        assert answer.status_code == 403
        admin = f"/v1/policies/{world.acme.policy_id}"
        answer = await world.ask("PATCH", admin, {"document": DOCUMENT}, token="writer")
        assert answer.status_code == 403
        assert not await is_admin(world, "writer")

    play(database_url, scenario)


def test_a_policy_of_another_account_is_attached_nowhere(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.program("ci")
        path = f"/v1/policies/{world.globex.policy_id}/attachments"
        answer = await world.ask("POST", path, {"service_account": "ci"})
        assert answer.status_code == 404
        assert not await is_admin(world, "ci")

    play(database_url, scenario)


def test_a_key_for_another_program_needs_the_right_on_it(database_url: str) -> None:
    async def scenario(world: World) -> None:
        own = f"crn:iam::{world.acme.account_id}:service-account/self"
        found = await world.program(
            "self", allow("iam:CreateAccessKey", "iam:UpdateServiceAccount", resources=(own,))
        )
        admin = world.principals["admin"].id
        stranger = world.principals["stranger"].id
        for target, status in ((found.id, 201), (admin, 403), (stranger, 404)):
            path = f"/v1/service-accounts/{target}/access-keys"
            assert (await world.ask("POST", path, token="self")).status_code == status
        path = f"/v1/service-accounts/{admin}"
        answer = await world.ask("PATCH", path, {"status": "suspended"}, token="self")
        assert answer.status_code == 403

    play(database_url, scenario)


def test_a_role_is_not_made_to_trust_its_finder(database_url: str) -> None:
    async def scenario(world: World) -> None:
        own = f"crn:iam::{world.acme.account_id}:role/own-*"
        await world.program("maker", allow("iam:CreateRole", resources=(own,)))
        await world.program("changer", allow("iam:UpdateRole", "iam:AssignRole", resources=(own,)))
        trust = {
            "version": "1",
            "statements": [{"effect": "allow", "principals": [world.principals["changer"].crn]}],
        }
        body = {"name": "own-1", "trust_policy": trust}
        made = await world.make("/v1/roles", body, token="maker")
        answer = await world.ask("POST", "/v1/roles", body | {"name": "admin-2"}, token="maker")
        assert answer.status_code == 403
        for role_id, status in (
            (made["id"], 200),
            (world.acme.role_id, 403),
            (world.globex.role_id, 404),
        ):
            change = {"trust_policy": trust}
            path = f"/v1/roles/{role_id}"
            answer = await world.ask("PATCH", path, change, token="changer")
            assert answer.status_code == status
        path = f"/v1/roles/{world.acme.role_id}/assignments"
        person = {"user": world.acme.person.id}
        assert (await world.ask("POST", path, person, token="changer")).status_code == 403

    play(database_url, scenario)


def test_a_guest_of_an_organization_gains_no_right_in_its_accounts(database_url: str) -> None:
    async def scenario(world: World) -> None:
        organization = f"/v1/organizations/{world.acme.organization_id}"
        await world.join("outsider", role="owner")
        assert (await world.ask("PATCH", organization, {}, token="outsider")).status_code == 200
        for path in ("/v1/roles", "/v1/policies", "/v1/service-accounts"):
            assert (await world.ask("GET", path, token="outsider")).status_code == 403
            assert (await world.ask("POST", path, {}, token="outsider")).status_code == 403
        role = {"user": world.globex.person.id}
        assignments = f"/v1/roles/{world.acme.role_id}/assignments"
        assert (await world.ask("POST", assignments, role, token="outsider")).status_code == 403

    play(database_url, scenario)


def test_rights_over_the_name_of_another_account_are_none(database_url: str) -> None:
    """A statement may name a foreign account; nothing follows without that account's word."""

    async def scenario(world: World) -> None:
        foreign = f"crn:iam::{world.globex.account_id}:*"
        await world.program("far", allow("*", resources=(foreign, "crn:iam::globex:role/admin")))
        for path in (
            f"/v1/roles/{world.globex.role_id}",
            f"/v1/policies/{world.globex.policy_id}",
            f"/v1/accounts/{world.globex.account_id}",
            f"/v1/users/{world.globex.person.id}",
        ):
            for method in ("GET", "DELETE"):
                answer = await world.ask(method, path, token="far")
                is_on_people = method == "DELETE" and path.startswith("/v1/users/")
                assert answer.status_code in ((403,) if is_on_people else (404, 405)), path
        assert (await world.ask("GET", "/v1/roles", token="far")).status_code == 403

    play(database_url, scenario)


@pytest.mark.parametrize("name", ["admin", "stranger"])
def test_who_lost_a_right_gets_no_replay(database_url: str, name: str) -> None:
    """E12: permission is asked before the recorded answer, secret and all, comes again."""

    async def scenario(world: World) -> None:
        tenant = world.acme if name == "admin" else world.globex
        await world.program("ci", allow("iam:CreateAccessKey"), tenant=tenant)
        path = f"/v1/service-accounts/{world.principals['ci'].id}/access-keys"
        first = await world.ask("POST", path, token="ci", key="k")
        assert first.status_code == 201
        assert (await world.ask("POST", path, token="ci", key="k")).content == first.content
        (policy,) = [
            each
            for each in (await world.ask("GET", "/v1/policies", token=name)).json()["policies"]
            if each["name"] == "of-ci"
        ]
        deny = {"version": "1", "statements": [allow("*") | {"effect": "deny"}]}
        changed = f"/v1/policies/{policy['id']}"
        assert (await world.ask("PATCH", changed, {"document": deny}, token=name)).is_success
        assert (await world.ask("POST", path, token="ci", key="k")).status_code == 403
        other = await world.ask("POST", path, token=name, key="k")
        assert other.json() != first.json()

    play(database_url, scenario)
