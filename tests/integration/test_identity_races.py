"""Limits and keys hold when requests come at once, and nothing fails for it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from cloudcore.db.base import Connection
from cloudcore.identity.rows.organizations import MEMBERS
from cloudcore.identity.rows.users import PEOPLE
from cloudcore.quotas.limits import EVERY_ACCOUNT, put_limit
from tests.databases import on_both_databases
from tests.identity_world import ALLOW_ALL, World

pytestmark = on_both_databases

DOCUMENT = {"version": "1", "statements": [ALLOW_ALL]}


async def answers(*asked: object) -> Counter[int]:
    found = await asyncio.gather(*asked)  # type: ignore[call-overload]
    return Counter(answer.status_code for answer in found)


async def test_two_keys_at_most_and_one_role_of_a_name(identity: World) -> None:
    owner = await identity.make("/v1/service-accounts", {"name": "ci"})
    path = f"/v1/service-accounts/{owner['id']}/access-keys"
    assert await answers(*(identity.ask("POST", path) for _ in range(8))) == {201: 2, 409: 6}
    trust = {"version": "1", "statements": [{"effect": "allow", "principals": ["acme"]}]}
    body = {"name": "one", "trust_policy": trust}
    asked = (identity.ask("POST", "/v1/roles", body) for _ in range(8))
    assert await answers(*asked) == {201: 1, 409: 7}
    body = {"email": "a@example.org", "organization": identity.acme.organization_id}
    users = (identity.ask("POST", "/v1/users", body, token="person") for _ in range(3))
    assert await answers(*users) == {201: 1, 409: 2}


async def test_ten_policies_at_most(identity: World) -> None:
    await identity.program("ci")
    made = [
        await identity.make("/v1/policies", {"name": f"p{index}", "document": DOCUMENT})
        for index in range(14)
    ]
    body = {"service_account": "ci"}
    paths = [f"/v1/policies/{policy['id']}/attachments" for policy in made]
    asked = (identity.ask("POST", path, body) for path in paths)
    assert await answers(*asked) == {201: 10, 409: 4}


async def test_what_is_used_and_deleted_at_once(identity: World) -> None:
    for turn in range(6):
        program = await identity.make("/v1/service-accounts", {"name": f"s{turn}"})
        policy = await identity.make("/v1/policies", {"name": f"p{turn}", "document": DOCUMENT})
        of_program = f"/v1/service-accounts/{program['id']}"
        of_policy = f"/v1/policies/{policy['id']}"
        found = await answers(
            identity.ask("POST", f"{of_policy}/attachments", {"service_account": program["id"]}),
            identity.ask("DELETE", of_program),
            identity.ask("POST", f"{of_program}/access-keys"),
            identity.ask("DELETE", of_policy),
            identity.ask("PATCH", of_policy, {"document": DOCUMENT}),
        )
        assert set(found) <= {200, 201, 204, 404, 409}, found


async def test_persons_leave_while_roles_are_assigned(identity: World) -> None:
    organization = f"/v1/organizations/{identity.acme.organization_id}"
    for turn in range(4):
        guest = await identity.person(f"guest-{turn}")
        await identity.join(f"guest-{turn}", role="owner")
        assignments = f"/v1/roles/{identity.acme.role_id}/assignments"
        found = await answers(
            identity.ask("POST", assignments, {"user": guest.id}),
            identity.ask("DELETE", f"/v1/users/{guest.id}", token="person"),
            identity.ask("DELETE", f"{organization}/members/{guest.id}", token="person"),
            identity.ask("POST", f"{organization}/switch", token=f"guest-{turn}"),
        )
        assert set(found) <= {200, 201, 204, 404}, found
        left = (await identity.ask("GET", assignments)).json()["assignments"]
        assert guest.id not in {each["user"]["id"] for each in left}


async def test_two_owners_do_not_both_leave(identity: World) -> None:
    guest = await identity.person("guest")
    path = f"/v1/organizations/{identity.acme.organization_id}"
    await identity.join("guest", role="owner")
    found = await answers(
        identity.ask("DELETE", f"{path}/members/{guest.id}", token="guest"),
        identity.ask("DELETE", f"{path}/members/{identity.acme.person.id}", token="person"),
    )
    assert found == {204: 1, 409: 1}


async def test_an_account_is_not_founded_in_an_organization_that_goes(identity: World) -> None:
    for turn in range(4):
        made = await identity.make("/v1/organizations", {"name": "x"}, token="person")
        body = {"handle": f"new-{turn}", "organization": made["id"]}
        found = await answers(
            identity.ask("POST", "/v1/accounts", body, token="person"),
            identity.ask("DELETE", f"/v1/organizations/{made['id']}", token="person"),
        )
        assert found in ({201: 1, 409: 1}, {404: 1, 204: 1}), found


def owners_left(tx: Connection, organization_id: str) -> set[str]:
    """Return the owners of an organization who can sign in."""
    owners = [
        each for each in MEMBERS.list(tx, organization_id, "", "", 99) if each.role == "owner"
    ]
    users = [PEOPLE.get(tx, organization_id, each.user_id) for each in owners]
    return {user.id for user in users if user.status == "active"}


@pytest.mark.parametrize("how", ["suspended", "deleted", "removed", "demoted", "of all kinds"])
async def test_two_owners_do_not_end_one_another(identity: World, how: str) -> None:
    first = identity.acme.person.id
    members = f"/v1/organizations/{identity.acme.organization_id}/members"
    for turn in range(4):
        second = (await identity.person(f"second-{turn}")).id
        await identity.join(f"second-{turn}", role="owner")
        asked = {
            "suspended": ("PATCH", "/v1/users", {"status": "suspended"}),
            "deleted": ("DELETE", "/v1/users", None),
            "removed": ("DELETE", members, None),
            "demoted": ("PATCH", members, {"role": "member"}),
        }
        ways = [asked[how]] * 2 if how in asked else [asked["suspended"], asked["removed"]]
        found = await asyncio.gather(
            *(
                identity.ask(method, f"{path}/{whom}", body, token=token)
                for (method, path, body), whom, token in zip(
                    ways, (second, first), ("person", f"second-{turn}"), strict=True
                )
            )
        )
        left = await identity.database.read(owners_left, identity.acme.organization_id)
        assert left, [answer.text for answer in found]
        if first not in left:
            return
        assert all(answer.status_code < 500 for answer in found)


async def test_an_organization_has_its_accounts_and_no_more(identity: World) -> None:
    await identity.database.write(put_limit, EVERY_ACCOUNT, "accounts", 4, 1)

    acme = identity.acme.organization_id
    bodies = [{"handle": f"another-{number}", "organization": acme} for number in range(8)]
    asked = [identity.ask("POST", "/v1/accounts", body, token="person") for body in bodies]
    found = await answers(*asked)
    assert found == {201: 3, 403: 5}
