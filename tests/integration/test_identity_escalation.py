"""Ways up that must not be: each begins with some rights and asks for more."""

from __future__ import annotations

from tests.identity_world import World


def allow(*actions: str, resources: tuple[str, ...] = ("*",)) -> dict[str, object]:
    return {"effect": "allow", "actions": [*actions], "resources": [*resources]}


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


async def test_who_lost_a_right_gets_no_replay(identity: World) -> None:
    """Permission is asked before the recorded answer, secret and all, comes again."""

    await identity.program("ci", allow("iam:CreateAccessKey"))
    path = f"/v1/service-accounts/{identity.principals['ci'].id}/access-keys"
    first = await identity.ask("POST", path, token="ci", key="k")
    assert first.status_code == 201
    assert (await identity.ask("POST", path, token="ci", key="k")).content == first.content
    (policy,) = (await identity.ask("GET", "/v1/policies?name=of-ci")).json()["policies"]
    deny = {"version": "1", "statements": [allow("*") | {"effect": "deny"}]}
    changed = f"/v1/policies/{policy['id']}"
    assert (await identity.ask("PATCH", changed, {"document": deny})).is_success
    assert (await identity.ask("POST", path, token="ci", key="k")).status_code == 403
    other = await identity.ask("POST", path, key="k")
    assert other.json() != first.json()
