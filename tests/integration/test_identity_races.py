"""Limits and keys hold when requests come at once, and nothing fails for it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from cloudcore.identity.rows.users import find_user
from cloudcore.identity.services import accounts
from tests.identity_world import ALLOW_ALL, World, play

DOCUMENT = {"version": "1", "statements": [ALLOW_ALL]}


async def answers(*asked: object) -> Counter[int]:
    found = await asyncio.gather(*asked)  # type: ignore[call-overload]
    return Counter(answer.status_code for answer in found)


def test_two_keys_at_most_and_one_role_of_a_name(database_url: str) -> None:
    async def scenario(world: World) -> None:
        owner = await world.make("/v1/service-accounts", {"name": "ci"})
        path = f"/v1/service-accounts/{owner['id']}/access-keys"
        assert await answers(*(world.ask("POST", path) for _ in range(8))) == {201: 2, 409: 6}
        trust = {"version": "1", "statements": [{"effect": "allow", "principals": ["acme"]}]}
        body = {"name": "one", "trust_policy": trust}
        asked = (world.ask("POST", "/v1/roles", body) for _ in range(8))
        assert await answers(*asked) == {201: 1, 409: 7}
        body = {"email": "a@example.org", "organization": world.acme.organization_id}
        users = (world.ask("POST", "/v1/users", body, token="person") for _ in range(3))
        assert await answers(*users) == {201: 1, 409: 2}

    play(database_url, scenario)


def test_ten_policies_at_most(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.program("ci")
        made = [
            await world.make("/v1/policies", {"name": f"p{index}", "document": DOCUMENT})
            for index in range(14)
        ]
        body = {"service_account": "ci"}
        paths = [f"/v1/policies/{policy['id']}/attachments" for policy in made]
        asked = (world.ask("POST", path, body) for path in paths)
        assert await answers(*asked) == {201: 10, 409: 4}

    play(database_url, scenario)


def test_what_is_used_and_deleted_at_once(database_url: str) -> None:
    async def scenario(world: World) -> None:
        for turn in range(6):
            program = await world.make("/v1/service-accounts", {"name": f"s{turn}"})
            policy = await world.make("/v1/policies", {"name": f"p{turn}", "document": DOCUMENT})
            of_program = f"/v1/service-accounts/{program['id']}"
            of_policy = f"/v1/policies/{policy['id']}"
            found = await answers(
                world.ask("POST", f"{of_policy}/attachments", {"service_account": program["id"]}),
                world.ask("DELETE", of_program),
                world.ask("POST", f"{of_program}/access-keys"),
                world.ask("DELETE", of_policy),
                world.ask("PATCH", of_policy, {"document": DOCUMENT}),
            )
            assert set(found) <= {200, 201, 204, 404, 409}, found

    play(database_url, scenario)


def test_persons_leave_while_roles_are_assigned(database_url: str) -> None:
    async def scenario(world: World) -> None:
        organization = f"/v1/organizations/{world.acme.organization_id}"
        for turn in range(4):
            guest = await world.person(f"guest-{turn}")
            await world.join(f"guest-{turn}", role="owner")
            assignments = f"/v1/roles/{world.acme.role_id}/assignments"
            found = await answers(
                world.ask("POST", assignments, {"user": guest.id}),
                world.ask("DELETE", f"/v1/users/{guest.id}", token="person"),
                world.ask("DELETE", f"{organization}/members/{guest.id}", token="person"),
                world.ask("POST", f"{organization}/switch", token=f"guest-{turn}"),
            )
            assert set(found) <= {200, 201, 204, 404}, found
            left = (await world.ask("GET", assignments)).json()["assignments"]
            assert guest.id not in {each["user"]["id"] for each in left}

    play(database_url, scenario)


def test_two_owners_do_not_both_leave(database_url: str) -> None:
    async def scenario(world: World) -> None:
        guest = await world.person("guest")
        path = f"/v1/organizations/{world.acme.organization_id}"
        await world.join("guest", role="owner")
        found = await answers(
            world.ask("DELETE", f"{path}/members/{guest.id}", token="guest"),
            world.ask("DELETE", f"{path}/members/{world.acme.person.id}", token="person"),
        )
        assert found == {204: 1, 409: 1}

    play(database_url, scenario)


def test_an_account_is_not_founded_in_an_organization_that_goes(database_url: str) -> None:
    async def scenario(world: World) -> None:
        for turn in range(4):
            made = await world.make("/v1/organizations", {"name": "x"}, token="person")
            body = {"handle": f"new-{turn}", "organization": made["id"]}
            found = await answers(
                world.ask("POST", "/v1/accounts", body, token="person"),
                world.ask("DELETE", f"/v1/organizations/{made['id']}", token="person"),
            )
            assert found in ({201: 1, 409: 1}, {404: 1, 204: 1}), found

    play(database_url, scenario)


async def two_owners(world: World, second: str) -> str:
    """Let a second person own the first tenant's organization; return the person's id."""
    person = await world.person(second)
    await world.join(second, role="owner")
    return person.id


async def owners_left(world: World) -> list[str]:
    """Return the owners of the first tenant's organization who can sign in."""
    path = f"/v1/organizations/{world.acme.organization_id}"
    found = []
    for token in world.principals:
        members = await world.ask("GET", f"{path}/members", token=token)
        if not members.is_success:
            continue
        for each in members.json()["members"]:
            if each["role"] == "owner" and each["status"] == "active":
                user = await world.database.read(find_user, each["user"]["id"])
                assert user is not None
                if user.status == "active":
                    found.append(user.id)
        break
    return found


@pytest.mark.parametrize("how", ["suspended", "deleted", "removed", "demoted", "of all kinds"])
def test_two_owners_do_not_end_one_another(database_url: str, how: str) -> None:
    async def scenario(world: World) -> None:
        first = world.acme.person.id
        members = f"/v1/organizations/{world.acme.organization_id}/members"
        for turn in range(4):
            second = await two_owners(world, f"second-{turn}")
            asked = {
                "suspended": ("PATCH", "/v1/users", {"status": "suspended"}),
                "deleted": ("DELETE", "/v1/users", None),
                "removed": ("DELETE", members, None),
                "demoted": ("PATCH", members, {"role": "member"}),
            }
            ways = [asked[how]] * 2 if how in asked else [asked["suspended"], asked["removed"]]
            found = await asyncio.gather(
                *(
                    world.ask(method, f"{path}/{whom}", body, token=token)
                    for (method, path, body), whom, token in zip(
                        ways, (second, first), ("person", f"second-{turn}"), strict=True
                    )
                )
            )
            left = await owners_left(world)
            assert left, [answer.text for answer in found]
            if first not in left:
                return
            assert all(answer.status_code < 500 for answer in found)

    play(database_url, scenario)


def test_an_organization_has_its_accounts_and_no_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MAX_ACCOUNTS", 4)

    async def scenario(world: World) -> None:
        acme = world.acme.organization_id
        found = await answers(
            *(
                world.ask(
                    "POST",
                    "/v1/accounts",
                    {"handle": f"another-{number}", "organization": acme},
                    token="person",
                )
                for number in range(8)
            )
        )
        assert found == {201: 3, 403: 5}

    play(database_url, scenario)
