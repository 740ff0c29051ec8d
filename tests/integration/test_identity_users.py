"""Persons are the organization's: its owners act on them, and accounts do not reach them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cloudcore.clock import uuid7
from cloudcore.errors import Conflict
from cloudcore.iam import passwords
from cloudcore.iam.passwords import match_passwords
from cloudcore.iam.principal import Founders
from cloudcore.identity.names import ACCOUNTS, OWNED
from cloudcore.identity.rows.sessions import find_live_session
from cloudcore.identity.rows.users import find_user
from cloudcore.identity.services.users import change_password
from tests.identity_world import World, open_world

USERS = "/v1/users"
SUSPEND = {"status": "suspended"}
RESUME = {"status": "active"}
AT_ONCE = 6


async def join(world: World, token: str, role: str = "member") -> str:
    """Let a new person join the first tenant's organization; return the person's id."""
    person = await world.person(token)
    await world.join(token, role=role)
    return person.id


async def password_of(world: World, user_id: str) -> str:
    """Return the hash of a person's password."""
    kept = await world.database.read(find_user, user_id)
    assert kept is not None
    return kept.password


async def test_a_person_is_made_with_a_password_for_one_sign_in(identity: World) -> None:
    acme = {"organization": identity.acme.organization_id}
    user = await identity.make(USERS, {"email": "Ada@Example.org", **acme}, token="person")
    password = user.pop("one_time_password")
    assert user["email"] == "ada@example.org"
    assert user["must_change_password"] is True
    assert await identity.show(f"{USERS}/{user['id']}") == user
    listed = await identity.show(USERS)
    assert [each["email"] for each in listed] == ["person@example.org", "ada@example.org"]
    kept = await identity.database.read(find_user, user["id"])
    assert kept is not None
    assert match_passwords(password, [kept.password]) == [True]
    assert user["crn"] == f"crn:iam::{kept.organization_id}:user/{user['id']}"
    for email in ("ADA@example.org", "ada", "a@b@c", "a b@example.org", "a@b.org\n", "x" * 255):
        status = await identity.status("POST", USERS, {"email": email, **acme}, token="person")
        assert status == (409 if email.lower() == user["email"] else 400), email


async def test_nobody_decides_over_a_person_of_two_organizations(identity: World) -> None:
    ada = await identity.person("ada")
    acme, globex = identity.acme.organization_id, identity.globex.organization_id
    path = f"{USERS}/{ada.id}"
    assert await identity.status("PATCH", path, SUSPEND, token="person") == 404
    await identity.invite(ada.email, organization=globex, by="outsider")
    await identity.invite(ada.email, organization=acme)
    assert await identity.status("GET", path) == 404
    await identity.join("ada")
    for change in (SUSPEND, RESUME):
        changed = await identity.ask("PATCH", path, change, token="person")
        assert changed.json()["user"]["status"] == change["status"]
    await identity.join("ada", organization=globex, by="outsider")
    for token in ("person", "outsider"):
        for method, body in (("PATCH", SUSPEND), ("DELETE", None)):
            assert await identity.status(method, path, body, token=token) == 409
    member = f"/v1/organizations/{globex}/members/{ada.id}"
    assert await identity.status("DELETE", member, token="outsider") == 204
    for status in (204, 404):
        assert await identity.status("DELETE", path, token="person") == status
    assert await identity.database.read(find_user, ada.id) is None


async def test_a_person_changes_its_password(identity: World) -> None:
    acme = identity.acme.organization_id
    made = await identity.add_user("ada", "ada@example.org", acme, "person")
    path = f"{USERS}/me/password"
    current = made["one_time_password"]
    for wrong, field in (
        ({"current_password": "guess", "password": "long enough for us"}, "current_password"),
        ({"current_password": current, "password": "short"}, "password"),
        ({"password": "long enough for us"}, "current_password"),
    ):
        answer = await identity.ask("PUT", path, wrong, token="ada")
        assert answer.status_code == 400
        assert answer.json()["error"]["params"]["field"] == field
    body = {"current_password": current, "password": "long enough for us"}
    assert await identity.status("PUT", path, body, token="ada") == 204
    kept = await identity.database.read(find_user, made["id"])
    assert kept is not None
    assert match_passwords("long enough for us", [kept.password]) == [True]
    assert not kept.must_change_password
    assert await identity.status("PUT", path, body, token="ada") == 400


async def test_of_two_changes_of_a_password_at_once_the_later_is_refused(identity: World) -> None:
    """Else who has only the old password could undo the change that was to keep them out."""
    person = await identity.person("ada")
    database, now = identity.database, identity.clock()
    change = person.id, person.password
    await database.write(change_password, *change, "first", uuid7(), now)
    with pytest.raises(Conflict, match="the password was changed meanwhile"):
        await database.write(change_password, *change, "second", uuid7(), now)
    kept = await database.read(find_user, person.id)
    assert kept is not None
    assert kept.password == "first"


async def test_an_owner_resets_a_password(identity: World) -> None:
    ada = await identity.person("ada")
    path = f"{USERS}/{ada.id}/reset-password"
    assert await identity.status("POST", path, token="person") == 404
    await identity.join("ada")
    for token, status in (("ada", 403), ("admin", 403), ("outsider", 404)):
        assert await identity.status("POST", path, token=token) == status
    answer = await identity.ask("POST", path, token="person", key="once")
    assert answer.status_code == 200
    user = answer.json()["user"]
    password = user.pop("one_time_password")
    assert user["must_change_password"] is True
    assert match_passwords(password, [await password_of(identity, ada.id)]) == [True]
    sid, now = identity.principals["ada"].sid or "", identity.now
    assert await identity.database.read(find_live_session, sid, now) is None
    retried = await identity.ask("POST", path, token="person", key="once")
    assert retried.content == answer.content

    own = f"{USERS}/{identity.acme.person.id}/reset-password"
    assert await identity.status("POST", own, token="person") == 409
    globex = identity.globex.organization_id
    await identity.join("ada", organization=globex, by="outsider")
    for token in ("person", "outsider"):
        assert await identity.status("POST", path, token=token) == 409


async def test_a_person_who_owns_something_is_not_deleted_and_keeps_the_password(
    identity: World,
) -> None:
    """Else the owner could sign in as the person and own what the person owns."""
    ada = await join(identity, "ada")
    await identity.make("/v1/accounts", {"handle": "adas"}, token="ada")
    assert await identity.status("DELETE", f"{USERS}/{ada}", token="person") == 409
    answer = await identity.ask("POST", f"{USERS}/{ada}/reset-password", token="person")
    assert answer.status_code == 409
    assert "the person owns accounts" in answer.json()["error"]["message"]


async def test_no_program_and_no_role_acts_on_people(identity: World) -> None:
    """Not even on whom it assigns roles to; a second account's admin is as far as any."""
    ada = await join(identity, "ada")
    await identity.role_session("role")
    for token in ("admin", "role"):
        body = {"email": "new@example.org", "organization": identity.acme.organization_id}
        assert await identity.status("POST", USERS, body, token=token) == 403
        for whom in (ada, identity.acme.person.id, identity.globex.person.id, uuid7()):
            path = f"{USERS}/{whom}"
            assert await identity.status("PATCH", path, SUSPEND, token=token) == 403
            assert await identity.status("DELETE", path, token=token) == 403
    assert await identity.status("GET", f"{USERS}/{ada}") == 200
    assignments = f"/v1/roles/{identity.acme.role_id}/assignments"
    assert await identity.status("POST", assignments, {"user": ada}) == 201


async def test_only_owners_act_on_people_and_members_see_them(identity: World) -> None:
    ada, bob = await join(identity, "ada"), await join(identity, "bob")
    acme = {"organization": identity.acme.organization_id}
    for token, expected in (("ada", 403), ("outsider", 404)):
        path = f"{USERS}/{bob}"
        assert await identity.status("PATCH", path, SUSPEND, token=token) == expected
        assert await identity.status("DELETE", path, token=token) == expected
        refused = await identity.ask("POST", USERS, {"email": "x@x.org", **acme}, token=token)
        assert refused.status_code == expected
        assert expected != 403 or refused.json()["error"]["message"] == (
            "you may not do iam:CreateUser here: your part in the organization does not allow it; "
            "ask one of its owners"
        )
    assert (await identity.show(f"{USERS}/{bob}", token="ada"))["id"] == bob
    await identity.ask("POST", f"/v1/organizations/{acme['organization']}/switch", token="ada")
    listed = await identity.show(USERS, token="ada")
    assert {each["id"] for each in listed} == {ada, bob, identity.acme.person.id}
    changed = await identity.ask("PATCH", f"{USERS}/{bob}", SUSPEND, token="person")
    assert changed.json()["user"]["status"] == "suspended"
    assert await identity.status("DELETE", f"{USERS}/{bob}", token="person") == 204


async def test_nobody_is_made_or_invited_in_a_personal_organization(identity: World) -> None:
    """Everyone owns one: it would make everyone an administrator of people."""
    guest = await identity.person("guest")
    own = guest.organization_id
    for body in ({"email": "x@example.org"}, {"email": "x@example.org", "organization": own}):
        assert await identity.status("POST", USERS, body, token="guest") == 403
    invitations = f"/v1/organizations/{own}/invitations"
    for email in ("nobody@example.org", identity.acme.person.email):
        assert await identity.status("POST", invitations, {"email": email}, token="guest") == 403
    for method in ("PATCH", "DELETE"):
        sent = SUSPEND if method == "PATCH" else None
        assert await identity.status(method, f"{USERS}/{guest.id}", sent, token="guest") == 404


async def test_the_last_owner_is_not_suspended_demoted_or_removed(identity: World) -> None:
    person = identity.acme.person
    owner, of = person.id, f"members/{person.id}"
    member = f"/v1/organizations/{identity.acme.organization_id}/{of}"
    of_own = f"/v1/organizations/{person.organization_id}/{of}"
    second = await join(identity, "second", "owner")
    assert await identity.status("PATCH", f"{USERS}/{second}", SUSPEND, token="person") == 200
    # An owner who cannot sign in is none to leave an organization to.
    for method, path, body in (
        ("PATCH", f"{USERS}/{owner}", SUSPEND),
        ("DELETE", f"{USERS}/{owner}", None),
        ("PATCH", member, {"role": "member"}),
        ("DELETE", member, None),
        ("PATCH", of_own, {"role": "billing"}),
        ("DELETE", of_own, None),
    ):
        assert await identity.status(method, path, body, token="person") == 409, (method, path)
    await identity.ask("PATCH", f"{USERS}/{second}", RESUME, token="person")
    assert await identity.status("PATCH", f"{USERS}/{owner}", SUSPEND, token="second") == 200


@pytest.mark.parametrize(
    ("founders", "of_owner", "of_person", "of_member"),
    [("nobody", 403, 403, 403), ("owners", 201, 403, 403), ("anyone", 201, 201, 201)],
)
async def test_the_operator_chooses_who_founds(
    sqlite_database: str, founders: Founders, of_owner: int, of_person: int, of_member: int
) -> None:
    async with open_world(sqlite_database, founders) as world:
        acme, accounts = world.acme.organization_id, "/v1/accounts"
        await join(world, "ada")
        for token, path, body, expected in (
            ("person", "/v1/organizations", {"name": "New"}, of_owner),
            ("person", accounts, {"handle": "one", "organization": acme}, of_owner),
            ("person", accounts, {"handle": "two"}, of_person),
            ("admin", accounts, {"handle": "three"}, of_person),
            # A member who owns nothing but itself founds nothing, unless anyone may.
            ("ada", "/v1/organizations", {"name": "Mine"}, of_member),
            ("ada", accounts, {"handle": "four"}, of_member),
            ("ada", accounts, {"handle": "five", "organization": acme}, 403),
        ):
            assert await world.status("POST", path, body, token=token) == expected, (token, body)


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


async def test_all_routes_hash_in_the_same_two_threads(
    identity: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many passwords are hashed at once: each takes 32 MiB and a core."""
    monkeypatch.setattr(passwords, "COST", passwords.ScryptCost(log_n=15, r=8, p=3))
    await identity.person("eve")
    # The threads themselves: the name and the number of one that ends are given to another.
    before = set(threading.enumerate())
    change = {"current_password": "not the one", "password": "a long enough password"}
    new = [
        {"email": f"{number}@example.org", "organization": identity.acme.organization_id}
        for number in range(AT_ONCE)
    ]
    statuses = await asyncio.gather(
        *(identity.status("POST", USERS, body, token="person") for body in new),
        identity.status("PUT", f"{USERS}/me/password", change, token="eve"),
    )
    assert statuses == [*[201] * AT_ONCE, 400]
    begun = sorted(thread.name for thread in set(threading.enumerate()) - before)
    assert begun == ["scrypt_0", "scrypt_1"]
