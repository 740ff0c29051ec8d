"""People are the organization's: its owners act on them, and accounts do not reach them."""

from __future__ import annotations

import pytest

from cloudcore.clock import uuid7
from cloudcore.iam.principal import Founders
from cloudcore.identity.names import ACCOUNTS, OWNED
from tests.identity_world import World, open_world

USERS = "/v1/users"
SUSPEND = {"status": "suspended"}


async def join(world: World, token: str, role: str = "member") -> str:
    """Let a new person join the first tenant's organization; return the person's id."""
    person = await world.person(token)
    await world.join(token, role=role)
    return person.id


async def test_no_program_and_no_role_acts_on_people(identity: World) -> None:
    """Not even on whom it assigns roles to; a second account's admin is as far as any."""

    ada = await join(identity, "ada")
    await identity.role_session("role")
    for token in ("admin", "role"):
        body = {"email": "new@example.org", "organization": identity.acme.organization_id}
        assert (await identity.ask("POST", USERS, body, token=token)).status_code == 403
        for whom in (ada, identity.acme.person.id, identity.globex.person.id, uuid7()):
            path = f"{USERS}/{whom}"
            assert (await identity.ask("PATCH", path, SUSPEND, token=token)).status_code == 403
            assert (await identity.ask("DELETE", path, token=token)).status_code == 403
    assert (await identity.ask("GET", f"{USERS}/{ada}")).status_code == 200
    assignments = f"/v1/roles/{identity.acme.role_id}/assignments"
    assert (await identity.ask("POST", assignments, {"user": ada})).status_code == 201


async def test_only_owners_act_on_people_and_members_see_them(identity: World) -> None:
    ada = await join(identity, "ada")
    bob = await join(identity, "bob")
    acme = {"organization": identity.acme.organization_id}
    for token, expected in (("ada", 403), ("outsider", 404)):
        path = f"{USERS}/{bob}"
        assert (await identity.ask("PATCH", path, SUSPEND, token=token)).status_code == expected
        assert (await identity.ask("DELETE", path, token=token)).status_code == expected
        body = {"email": "new@example.org", **acme}
        assert (await identity.ask("POST", USERS, body, token=token)).status_code == expected
    assert (await identity.ask("GET", f"{USERS}/{bob}", token="ada")).json()["user"]["id"] == bob
    await identity.ask("POST", f"/v1/organizations/{acme['organization']}/switch", token="ada")
    listed = (await identity.ask("GET", USERS, token="ada")).json()
    assert {each["id"] for each in listed["users"]} == {ada, bob, identity.acme.person.id}
    changed = await identity.ask("PATCH", f"{USERS}/{bob}", SUSPEND, token="person")
    assert changed.json()["user"]["status"] == "suspended"
    assert (await identity.ask("DELETE", f"{USERS}/{bob}", token="person")).status_code == 204


async def test_nobody_is_made_or_invited_in_a_personal_organization(identity: World) -> None:
    """Everyone owns one: it would make everyone an administrator of people."""

    guest = await identity.person("guest")
    own = guest.organization_id
    for body in ({"email": "x@example.org"}, {"email": "x@example.org", "organization": own}):
        assert (await identity.ask("POST", USERS, body, token="guest")).status_code == 403
    invitations = f"/v1/organizations/{own}/invitations"
    for email in ("nobody@example.org", identity.acme.person.email):
        invited = await identity.ask("POST", invitations, {"email": email}, token="guest")
        assert invited.status_code == 403
    for method in ("PATCH", "DELETE"):
        sent = SUSPEND if method == "PATCH" else None
        answer = await identity.ask(method, f"{USERS}/{guest.id}", sent, token="guest")
        assert answer.status_code == 404


async def test_the_last_owner_is_not_suspended_demoted_or_removed(identity: World) -> None:
    owner = identity.acme.person.id
    member = f"/v1/organizations/{identity.acme.organization_id}/members/{owner}"
    second = await join(identity, "second", "owner")
    suspended = await identity.ask("PATCH", f"{USERS}/{second}", SUSPEND, token="person")
    assert suspended.status_code == 200
    # An owner who cannot sign in is none to leave an organization to.
    for method, path, body in (
        ("PATCH", f"{USERS}/{owner}", SUSPEND),
        ("DELETE", f"{USERS}/{owner}", None),
        ("PATCH", member, {"role": "member"}),
        ("DELETE", member, None),
    ):
        answer = await identity.ask(method, path, body, token="person")
        assert answer.status_code == 409, (method, path)
    resumed = {"status": "active"}
    await identity.ask("PATCH", f"{USERS}/{second}", resumed, token="person")
    ended = await identity.ask("PATCH", f"{USERS}/{owner}", SUSPEND, token="second")
    assert ended.status_code == 200


@pytest.mark.parametrize(
    ("founders", "organization", "in_own", "in_personal", "by_program"),
    [
        ("nobody", 403, 403, 403, 403),
        ("owners", 201, 201, 403, 403),
        ("anyone", 201, 201, 201, 201),
    ],
)
async def test_the_operator_chooses_who_founds(
    database_url: str,
    founders: Founders,
    organization: int,
    in_own: int,
    in_personal: int,
    by_program: int,
) -> None:
    async with open_world(database_url, founders) as world:

        async def found(token: str, path: str, **body: str) -> int:
            return (await world.ask("POST", path, body, token=token)).status_code

        acme = world.acme.organization_id
        await join(world, "ada")
        accounts = "/v1/accounts"
        assert await found("person", "/v1/organizations", name="New") == organization
        assert await found("person", accounts, handle="one", organization=acme) == in_own
        assert await found("person", accounts, handle="two") == in_personal
        assert await found("admin", accounts, handle="three") == by_program
        # A member who owns nothing but itself founds nothing, unless anyone may.
        of_ada = 201 if founders == "anyone" else 403
        assert await found("ada", "/v1/organizations", name="Mine") == of_ada
        assert await found("ada", accounts, handle="four") == of_ada
        assert await found("ada", accounts, handle="five", organization=acme) == 403


async def test_a_person_and_an_organization_own_so_many(identity: World) -> None:
    acme = {"organization": identity.acme.organization_id}
    for number in range(ACCOUNTS.default - 1):
        another = {"handle": f"another-{number}", **acme}
        await identity.make("/v1/accounts", another, token="person")
    for number in range(OWNED.default - 1):
        await identity.make("/v1/organizations", {"name": f"{number}"}, token="person")
    for path, body, quota, limit in (
        ("/v1/accounts", {"handle": "more", **acme}, "accounts", ACCOUNTS.default),
        ("/v1/organizations", {"name": "More"}, "organizations", OWNED.default),
    ):
        answer = await identity.ask("POST", path, body, token="person")
        assert answer.status_code == 403
        error = answer.json()["error"]
        assert error["code"] == "QUOTA_EXCEEDED"
        assert error["params"] == {"quota": quota, "limit": limit, "used": limit}


async def test_a_member_is_told_that_its_part_is_too_small(identity: World) -> None:
    await join(identity, "guest", "member")
    body = {"email": "x@example.org", "organization": identity.acme.organization_id}
    answer = await identity.ask("POST", USERS, body, token="guest")
    assert answer.status_code == 403
    assert answer.json()["error"]["message"] == (
        "you may not do iam:CreateUser here: your part in the organization does not allow it; "
        "ask one of its owners"
    )
