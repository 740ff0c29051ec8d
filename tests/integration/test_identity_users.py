"""Persons: made by administrators, whose say ends where another organization begins."""

from __future__ import annotations

from cloudcore.iam.passwords import match_passwords
from cloudcore.identity.rows.sessions import find_live_session
from cloudcore.identity.rows.users import find_user
from tests.identity_world import World

USERS = "/v1/users"


async def test_a_person_is_made_with_a_password_for_one_sign_in(identity: World) -> None:
    acme = {"organization": identity.acme.organization_id}
    body = {"email": "Ada@Example.org", **acme}
    answer = await identity.ask("POST", USERS, body, token="person")
    user = answer.json()["user"]
    password = user.pop("one_time_password")
    assert user["email"] == "ada@example.org"
    assert user["must_change_password"] is True
    assert (await identity.ask("GET", f"{USERS}/{user['id']}")).json()["user"] == user
    listed = (await identity.ask("GET", USERS)).json()
    assert [each["email"] for each in listed["users"]] == [
        "person@example.org",
        "ada@example.org",
    ]
    assert listed["meta"]["total"] == 2
    kept = await identity.database.read(find_user, user["id"])
    assert kept is not None
    assert match_passwords(password, [kept.password]) == [True]
    assert user["crn"] == f"crn:iam::{kept.organization_id}:user/{user['id']}"
    taken = await identity.ask("POST", USERS, {"email": "ADA@example.org", **acme}, token="person")
    assert taken.status_code == 409
    for email in ("ada", "a@b@c", "a b@example.org", "ada@example.org\n", "x" * 255):
        body = {"email": email, **acme}
        assert (await identity.ask("POST", USERS, body, token="person")).status_code == 400


async def test_nobody_decides_over_a_person_of_two_organizations(identity: World) -> None:
    ada = await identity.person("ada")
    acme, globex = identity.acme.organization_id, identity.globex.organization_id
    path = f"{USERS}/{ada.id}"
    suspend = {"status": "suspended"}
    assert (await identity.ask("PATCH", path, suspend, token="person")).status_code == 404
    await identity.invite(ada.email, organization=globex, by="outsider")
    await identity.invite(ada.email, organization=acme)
    assert (await identity.ask("GET", path)).status_code == 404
    await identity.join("ada")
    suspended = await identity.ask("PATCH", path, suspend, token="person")
    assert suspended.json()["user"]["status"] == "suspended"
    resume = {"status": "active"}
    assert (await identity.ask("PATCH", path, resume, token="person")).status_code == 200
    await identity.join("ada", organization=globex, by="outsider")
    for token in ("person", "outsider"):
        for method, body in (("PATCH", {"status": "suspended"}), ("DELETE", None)):
            refused = await identity.ask(method, path, body, token=token)
            assert refused.status_code == 409
    member = f"/v1/organizations/{globex}/members/{ada.id}"
    assert (await identity.ask("DELETE", member, token="outsider")).status_code == 204
    for status in (204, 404):
        assert (await identity.ask("DELETE", path, token="person")).status_code == status
    assert await identity.database.read(find_user, ada.id) is None


async def test_a_person_who_owns_something_is_not_deleted(identity: World) -> None:
    path = f"{USERS}/{identity.acme.person.id}"
    only = await identity.ask("DELETE", path, token="person")
    assert only.status_code == 409  # the only owner
    ada = await identity.person("ada")
    await identity.join("ada")
    await identity.make("/v1/accounts", {"handle": "adas"}, token="ada")
    refused = await identity.ask("DELETE", f"{USERS}/{ada.id}", token="person")
    assert refused.status_code == 409


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
    assert (await identity.ask("PUT", path, body, token="ada")).status_code == 204
    kept = await identity.database.read(find_user, made["id"])
    assert kept is not None
    assert match_passwords("long enough for us", [kept.password]) == [True]
    assert not kept.must_change_password
    assert (await identity.ask("PUT", path, body, token="ada")).status_code == 400


async def test_an_owner_resets_a_password(identity: World) -> None:
    ada = await identity.person("ada")
    path = f"{USERS}/{ada.id}/reset-password"
    assert (await identity.ask("POST", path, token="person")).status_code == 404
    await identity.join("ada")
    for token, status in (("ada", 403), ("admin", 403), ("outsider", 404)):
        assert (await identity.ask("POST", path, token=token)).status_code == status
    answer = await identity.ask("POST", path, token="person", key="once")
    assert answer.status_code == 200
    user = answer.json()["user"]
    password = user.pop("one_time_password")
    assert user["must_change_password"] is True
    kept = await identity.database.read(find_user, ada.id)
    assert kept is not None
    assert match_passwords(password, [kept.password]) == [True]
    sid, now = identity.principals["ada"].sid or "", identity.now
    assert await identity.database.read(find_live_session, sid, now) is None
    retried = await identity.ask("POST", path, token="person", key="once")
    assert retried.content == answer.content

    own = f"{USERS}/{identity.acme.person.id}/reset-password"
    assert (await identity.ask("POST", own, token="person")).status_code == 409
    globex = identity.globex.organization_id
    await identity.join("ada", organization=globex, by="outsider")
    for token in ("person", "outsider"):
        assert (await identity.ask("POST", path, token=token)).status_code == 409


async def test_who_resets_a_password_gains_no_account(identity: World) -> None:
    """Else the owner could sign in as the person and own what the person owns."""
    ada = await identity.person("ada")
    await identity.join("ada")
    await identity.make("/v1/accounts", {"handle": "adas"}, token="ada")
    answer = await identity.ask("POST", f"{USERS}/{ada.id}/reset-password", token="person")
    assert answer.status_code == 409
    assert "the person owns accounts" in answer.json()["error"]["message"]
