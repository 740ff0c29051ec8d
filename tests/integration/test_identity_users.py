"""Persons: made by administrators, whose say ends where another organization begins."""

from __future__ import annotations

import pytest

from cloudcore.iam.passwords import match_passwords
from cloudcore.identity.rows.users import find_user
from tests.identity_world import World, play

USERS = "/v1/users"


def test_a_person_is_made_with_a_password_for_one_sign_in(database_url: str) -> None:
    async def scenario(world: World) -> None:
        acme = {"organization": world.acme.organization_id}
        body = {"email": "Ada@Example.org", **acme}
        answer = await world.ask("POST", USERS, body, token="person")
        user = answer.json()["user"]
        password = user.pop("one_time_password")
        assert user["email"] == "ada@example.org"
        assert user["must_change_password"] is True
        assert (await world.ask("GET", f"{USERS}/{user['id']}")).json()["user"] == user
        listed = (await world.ask("GET", USERS)).json()
        assert [each["email"] for each in listed["users"]] == [
            "person@example.org",
            "ada@example.org",
        ]
        assert listed["meta"]["total"] == 2
        kept = await world.database.read(find_user, user["id"])
        assert kept is not None
        assert match_passwords(password, [kept.password]) == [True]
        assert user["crn"] == f"crn:iam::{kept.organization_id}:user/{user['id']}"
        taken = await world.ask("POST", USERS, {"email": "ADA@example.org", **acme}, token="person")
        assert taken.status_code == 409
        for email in ("ada", "a@b@c", "a b@example.org", "ada@example.org\n", "x" * 255):
            body = {"email": email, **acme}
            assert (await world.ask("POST", USERS, body, token="person")).status_code == 400

    play(database_url, scenario)


def test_nobody_decides_over_a_person_of_two_organizations(database_url: str) -> None:
    async def scenario(world: World) -> None:
        ada = await world.person("ada")
        acme, globex = world.acme.organization_id, world.globex.organization_id
        path = f"{USERS}/{ada.id}"
        suspend = {"status": "suspended"}
        assert (await world.ask("PATCH", path, suspend, token="person")).status_code == 404
        await world.invite(ada.email, organization=globex, by="outsider")
        await world.invite(ada.email, organization=acme)
        assert (await world.ask("GET", path)).status_code == 404
        await world.join("ada")
        suspended = await world.ask("PATCH", path, suspend, token="person")
        assert suspended.json()["user"]["status"] == "suspended"
        resume = {"status": "active"}
        assert (await world.ask("PATCH", path, resume, token="person")).status_code == 200
        await world.join("ada", organization=globex, by="outsider")
        for token in ("person", "outsider"):
            for method, body in (("PATCH", {"status": "suspended"}), ("DELETE", None)):
                refused = await world.ask(method, path, body, token=token)
                assert refused.status_code == 409
        member = f"/v1/organizations/{globex}/members/{ada.id}"
        assert (await world.ask("DELETE", member, token="outsider")).status_code == 204
        for status in (204, 404):
            assert (await world.ask("DELETE", path, token="person")).status_code == status
        assert await world.database.read(find_user, ada.id) is None

    play(database_url, scenario)


def test_a_person_who_owns_something_is_not_deleted(database_url: str) -> None:
    async def scenario(world: World) -> None:
        path = f"{USERS}/{world.acme.person.id}"
        only = await world.ask("DELETE", path, token="person")
        assert only.status_code == 409  # the only owner
        ada = await world.person("ada")
        await world.join("ada")
        await world.make("/v1/accounts", {"handle": "adas"}, token="ada")
        refused = await world.ask("DELETE", f"{USERS}/{ada.id}", token="person")
        assert refused.status_code == 409

    play(database_url, scenario)


def test_a_person_changes_its_password(sqlite_database: str) -> None:
    async def scenario(world: World) -> None:
        body = {"email": "ada@example.org", "organization": world.acme.organization_id}
        made = await world.make(USERS, body, token="person")
        person = world.principals["person"]
        personal = made["crn"].split(":")[3]
        world.principals["ada"] = person._replace(
            id=made["id"], crn=made["crn"], organization_id=personal, sid=None
        )
        path = f"{USERS}/me/password"
        current = made["one_time_password"]
        for wrong, field in (
            ({"current_password": "guess", "password": "long enough for us"}, "current_password"),
            ({"current_password": current, "password": "short"}, "password"),
            ({"password": "long enough for us"}, "current_password"),
        ):
            answer = await world.ask("PUT", path, wrong, token="ada")
            assert answer.status_code == 400
            assert answer.json()["error"]["params"]["field"] == field
        body = {"current_password": current, "password": "long enough for us"}
        assert (await world.ask("PUT", path, body, token="ada")).status_code == 204
        kept = await world.database.read(find_user, made["id"])
        assert kept is not None
        assert match_passwords("long enough for us", [kept.password]) == [True]
        assert not kept.must_change_password
        assert (await world.ask("PUT", path, body, token="ada")).status_code == 400

    play(sqlite_database, scenario)


@pytest.mark.parametrize("path", ["/v1/roles", "/v1/policies", "/v1/service-accounts"])
def test_a_person_without_a_role_calls_no_account_service(sqlite_database: str, path: str) -> None:
    """S8, I11."""

    async def scenario(world: World) -> None:
        for method in ("GET", "POST"):
            assert (await world.ask(method, path, token="person")).status_code == 403

    play(sqlite_database, scenario)
