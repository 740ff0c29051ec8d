"""Organizations, their members and invitations: a matter of persons."""

from __future__ import annotations

from tests.databases import on_both_databases
from tests.identity_world import World

ORGANIZATIONS = "/v1/organizations"


async def statuses(world: World, token: str, organization: str) -> list[int]:
    """Ask for what members may, then for what owners may."""
    path = f"{ORGANIZATIONS}/{organization}"
    return [
        (await world.ask(*request, token=token)).status_code
        for request in (
            ("GET", path),
            ("GET", f"{path}/members"),
            ("PATCH", path, {}),
            ("POST", f"{path}/invitations", {"email": "nobody@example.org"}),
        )
    ]


@on_both_databases
async def test_an_organization_lives(identity: World) -> None:
    made = await identity.make(ORGANIZATIONS, {"name": "Büro"}, token="person")
    crn = f"crn:iam::{made['id']}:organization/{made['id']}"
    assert (made["crn"], made["name"], made["role"]) == (crn, "Büro", "owner")
    assert not made["is_personal"]
    path = f"{ORGANIZATIONS}/{made['id']}"
    renamed = await identity.ask("PATCH", path, {"name": "Office"}, token="person")
    assert renamed.json()["organization"]["name"] == "Office"
    listed = (await identity.ask("GET", ORGANIZATIONS, token="person")).json()
    assert [each["name"] for each in listed["organizations"]] == [
        "person@example.org",
        "acme",
        "Office",
    ]
    assert listed["meta"]["total"] == 3
    for status in (204, 404):
        assert (await identity.ask("DELETE", path, token="person")).status_code == status
    for owned in (identity.acme.organization_id, identity.acme.person.organization_id):
        refused = await identity.ask("DELETE", f"{ORGANIZATIONS}/{owned}", token="person")
        assert refused.status_code == 409


async def test_a_member_is_no_owner(identity: World) -> None:
    acme, guest = identity.acme, await identity.person("guest")
    await identity.join("guest")
    path = f"{ORGANIZATIONS}/{acme.organization_id}"
    for method, target, body in (
        ("PATCH", path, {"name": "Mine"}),
        ("DELETE", path, None),
        ("POST", f"{path}/invitations", {"email": "nobody@example.org"}),
        ("PATCH", f"{path}/members/{guest.id}", {"role": "owner"}),
        ("DELETE", f"{path}/members/{acme.person.id}", None),
        ("POST", "/v1/accounts", {"handle": "new", "organization": acme.organization_id}),
        ("PATCH", f"/v1/accounts/{acme.account_id}", {"status": "suspended"}),
    ):
        answer = await identity.ask(method, target, body, token="guest")
        assert answer.status_code == 403, (method, target)


async def test_an_invitation_gives_nothing_until_it_is_accepted(identity: World) -> None:
    guest = await identity.person("guest")
    acme = identity.acme.organization_id
    path = f"{ORGANIZATIONS}/{acme}"
    assert await statuses(identity, "guest", acme) == [404] * 4
    code = await identity.invite("Guest@Example.org")
    assert await statuses(identity, "guest", acme) == [404] * 4
    seen = (await identity.ask("GET", ORGANIZATIONS, token="guest")).json()
    assert [each["name"] for each in seen["organizations"]] == [guest.email]
    assert (await identity.ask("POST", f"{path}/switch", token="guest")).status_code == 404

    accepted = await identity.accept(code, token="guest")
    assert accepted.json()["organization"]["status"] == "active"
    assert await statuses(identity, "guest", acme) == [200, 200, 403, 403]
    members = (await identity.ask("GET", f"{path}/members", token="guest")).json()["members"]
    assert {each["user"]["name"] for each in members} == {
        "guest@example.org",
        "person@example.org",
    }
    member = f"{path}/members/{guest.id}"
    own = await identity.ask("PATCH", member, {"role": "owner"}, token="guest")
    assert own.status_code == 403
    raised = await identity.ask("PATCH", member, {"role": "owner"}, token="person")
    assert raised.json()["member"]["role"] == "owner"
    assert await statuses(identity, "guest", acme) == [200, 200, 200, 201]
    gone = await identity.ask("DELETE", member, token="person")
    assert gone.status_code == 204
    assert await statuses(identity, "guest", acme) == [404] * 4


async def test_whoever_joined_may_leave(identity: World) -> None:
    guest = await identity.person("guest")
    path = f"{ORGANIZATIONS}/{identity.acme.organization_id}"
    await identity.join("guest")
    for status in (204, 404):
        left = await identity.ask("DELETE", f"{path}/members/{guest.id}", token="guest")
        assert left.status_code == status


async def test_an_organization_keeps_an_owner(identity: World) -> None:
    person = identity.acme.person
    for organization in (identity.acme.organization_id, person.organization_id):
        path = f"{ORGANIZATIONS}/{organization}/members/{person.id}"
        assert (await identity.ask("DELETE", path, token="person")).status_code == 409
        demoted = await identity.ask("PATCH", path, {"role": "billing"}, token="person")
        assert demoted.status_code == 409


async def test_leaving_takes_the_roles_in_its_accounts_along(identity: World) -> None:
    guest = await identity.person("guest")
    path = f"{ORGANIZATIONS}/{identity.acme.organization_id}"
    code = await identity.invite(guest.email)
    assignments = f"/v1/roles/{identity.acme.role_id}/assignments"
    early = await identity.ask("POST", assignments, {"user": guest.id})
    assert early.status_code == 404
    await identity.accept(code, token="guest")
    await identity.make(assignments, {"user": guest.id})
    assert (await identity.ask("GET", assignments)).json()["meta"]["total"] == 2
    await identity.ask("DELETE", f"{path}/members/{guest.id}", token="guest")
    assert (await identity.ask("GET", assignments)).json()["meta"]["total"] == 1


async def test_switching_says_where_a_session_works(identity: World) -> None:
    person, acme = identity.acme.person, identity.acme.organization_id

    async def current() -> str:
        me = (await identity.ask("GET", "/v1/users/me", token="person")).json()["user"]
        assert me["email"] == "person@example.org"
        found: str = me["organization"]["id"]
        name = "acme" if found == acme else person.email
        crn = f"crn:iam::{found}:organization/{found}"
        assert me["organization"] == {"id": found, "crn": crn, "name": name}
        return found

    assert await current() == person.organization_id
    switched = await identity.ask("POST", f"{ORGANIZATIONS}/{acme}/switch", token="person")
    assert switched.json()["organization"]["id"] == acme
    assert await current() == acme
    account = await identity.make("/v1/accounts", {"handle": "second"}, token="person")
    assert account["organization"]["id"] == acme
    other = f"{ORGANIZATIONS}/{identity.globex.organization_id}/switch"
    assert (await identity.ask("POST", other, token="person")).status_code == 404
    assert await current() == acme


async def test_a_session_works_no_longer_in_an_organization_that_its_person_left(
    identity: World,
) -> None:
    guest = await identity.person("guest")
    await identity.join("guest")
    path = f"{ORGANIZATIONS}/{identity.acme.organization_id}"
    assert (await identity.ask("POST", f"{path}/switch", token="guest")).status_code == 200
    gone = await identity.ask("DELETE", f"{path}/members/{guest.id}", token="person")
    assert gone.status_code == 204
    me = (await identity.ask("GET", "/v1/users/me", token="guest")).json()["user"]
    assert me["organization"]["id"] == guest.organization_id
    listed = await identity.ask("GET", "/v1/users", token="guest")
    assert [each["id"] for each in listed.json()["users"]] == [guest.id]
