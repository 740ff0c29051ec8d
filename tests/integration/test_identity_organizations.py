"""Organizations, their members and accounts: a matter of persons, who own so many."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from cloudcore import account_rows
from cloudcore.db.base import Connection
from cloudcore.identity.services.members import lock_organization
from tests.databases import on_both_databases
from tests.identity_world import World

ORGANIZATIONS = "/v1/organizations"
ACCOUNTS = "/v1/accounts"


def reference(organization_id: str, name: str) -> dict[str, str]:
    crn = f"crn:iam::{organization_id}:organization/{organization_id}"
    return {"id": organization_id, "crn": crn, "name": name}


async def statuses(world: World, token: str, organization: str) -> list[int]:
    """Ask for what members may, then for what owners may."""
    path = f"{ORGANIZATIONS}/{organization}"
    return [
        await world.status(*request, token=token)
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
    listed = await identity.show(ORGANIZATIONS, token="person")
    assert [each["name"] for each in listed] == ["person@example.org", "acme", "Office"]
    for status in (204, 404):
        assert await identity.status("DELETE", path, token="person") == status
    for owned in (identity.acme.organization_id, identity.acme.person.organization_id):
        assert await identity.status("DELETE", f"{ORGANIZATIONS}/{owned}", token="person") == 409


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
        assert await identity.status(method, target, body, token="guest") == 403, (method, target)


async def test_an_invitation_gives_nothing_until_it_is_accepted(identity: World) -> None:
    guest = await identity.person("guest")
    acme = identity.acme.organization_id
    path = f"{ORGANIZATIONS}/{acme}"
    assert await statuses(identity, "guest", acme) == [404] * 4
    code = await identity.invite("Guest@Example.org")
    assert await statuses(identity, "guest", acme) == [404] * 4
    seen = await identity.show(ORGANIZATIONS, token="guest")
    assert [each["name"] for each in seen] == [guest.email]
    assert await identity.status("POST", f"{path}/switch", token="guest") == 404

    accepted = await identity.accept(code, token="guest")
    assert accepted.json()["organization"]["status"] == "active"
    assert await statuses(identity, "guest", acme) == [200, 200, 403, 403]
    members = await identity.show(f"{path}/members", token="guest")
    assert {each["user"]["name"] for each in members} == {guest.email, "person@example.org"}
    member = f"{path}/members/{guest.id}"
    assert await identity.status("PATCH", member, {"role": "owner"}, token="guest") == 403
    raised = await identity.ask("PATCH", member, {"role": "owner"}, token="person")
    assert raised.json()["member"]["role"] == "owner"
    assert await statuses(identity, "guest", acme) == [200, 200, 200, 201]
    assert await identity.status("DELETE", member, token="person") == 204
    assert await statuses(identity, "guest", acme) == [404] * 4


async def test_leaving_takes_the_roles_in_its_accounts_along(identity: World) -> None:
    guest = await identity.person("guest")
    path = f"{ORGANIZATIONS}/{identity.acme.organization_id}"
    code = await identity.invite(guest.email)
    assignments = f"/v1/roles/{identity.acme.role_id}/assignments"
    assert await identity.status("POST", assignments, {"user": guest.id}) == 404
    await identity.accept(code, token="guest")
    await identity.make(assignments, {"user": guest.id})
    assert len(await identity.show(assignments)) == 2
    for status in (204, 404):  # a second time, there is no organization
        left = await identity.status("DELETE", f"{path}/members/{guest.id}", token="guest")
        assert left == status
    assert len(await identity.show(assignments)) == 1


async def test_switching_says_where_a_session_works(identity: World) -> None:
    person, acme = identity.acme.person, identity.acme.organization_id

    async def current() -> str:
        me = await identity.show("/v1/users/me", token="person")
        assert me["email"] == person.email
        found: str = me["organization"]["id"]
        assert me["organization"] == reference(found, "acme" if found == acme else person.email)
        return found

    assert await current() == person.organization_id
    switched = await identity.ask("POST", f"{ORGANIZATIONS}/{acme}/switch", token="person")
    assert switched.json()["organization"]["id"] == acme
    assert await current() == acme
    account = await identity.make("/v1/accounts", {"handle": "second"}, token="person")
    assert account["organization"]["id"] == acme
    other = f"{ORGANIZATIONS}/{identity.globex.organization_id}/switch"
    assert await identity.status("POST", other, token="person") == 404
    assert await current() == acme


async def test_a_session_works_no_longer_in_an_organization_that_its_person_left(
    identity: World,
) -> None:
    guest = await identity.person("guest")
    await identity.join("guest")
    path = f"{ORGANIZATIONS}/{identity.acme.organization_id}"
    assert await identity.status("POST", f"{path}/switch", token="guest") == 200
    assert await identity.status("DELETE", f"{path}/members/{guest.id}", token="person") == 204
    me = await identity.show("/v1/users/me", token="guest")
    assert me["organization"]["id"] == guest.organization_id
    listed = await identity.show("/v1/users", token="guest")
    assert [each["id"] for each in listed] == [guest.id]


@on_both_databases
async def test_a_person_founds_an_account_with_a_role_of_its_own(identity: World) -> None:
    acme = identity.acme.organization_id
    body = {"handle": "acme-2", "organization": acme}
    made = await identity.make(ACCOUNTS, body, token="person")
    assert made["crn"] == f"crn:iam::{made['id']}:account/acme-2"
    assert made["organization"] == reference(acme, "acme")
    assert (made["status"], made["auto_create_repositories"]) == ("active", True)
    assert await identity.status("POST", ACCOUNTS, body, token="person") == 409
    listed = await identity.show(ACCOUNTS, token="person")
    assert [each["handle"] for each in listed] == ["acme", "acme-2"]
    own = await identity.make(ACCOUNTS, {"handle": "mine"}, token="person")
    person = identity.acme.person
    assert own["organization"] == reference(person.organization_id, person.email)
    foreign = body | {"handle": "x1", "organization": identity.globex.organization_id}
    assert await identity.status("POST", ACCOUNTS, foreign, token="person") == 404
    for handle in ("X1", "x", "a--b", "-a", "a.b", "x\n"):
        wrong = await identity.ask("POST", ACCOUNTS, {"handle": handle}, token="person")
        assert wrong.json()["error"]["params"]["field"] == "handle"


async def test_a_program_founds_accounts_in_its_own_organization(identity: World) -> None:
    made = await identity.make(ACCOUNTS, {"handle": "second"})
    owner = reference(identity.acme.organization_id, "acme")
    assert made["organization"] == owner
    foreign = {"handle": "third", "organization": identity.globex.organization_id}
    assert await identity.status("POST", ACCOUNTS, foreign) == 404
    await identity.program("ci")
    assert await identity.status("POST", ACCOUNTS, foreign, token="ci") == 403
    # The account is another, whoever founded it.
    assert await identity.status("GET", f"{ACCOUNTS}/{made['id']}") == 404
    (listed,) = await identity.show(ACCOUNTS)
    assert (listed["handle"], listed["organization"]) == ("acme", owner)
    path = f"{ACCOUNTS}/{identity.acme.account_id}"
    for body in (None, {"auto_create_repositories": False}):
        answer = await identity.ask("GET" if body is None else "PATCH", path, body)
        assert answer.json()["account"]["organization"] == owner


async def test_only_an_owner_suspends_an_account(identity: World) -> None:
    guest = await identity.person("guest")
    code = await identity.invite(guest.email)
    path = f"{ACCOUNTS}/{identity.acme.account_id}"
    suspend = {"status": "suspended"}
    assert await identity.status("PATCH", path, suspend) == 403
    assert await identity.status("PATCH", path, suspend, token="guest") == 404
    await identity.accept(code, token="guest")
    assert await identity.status("GET", path, token="guest") == 200
    assert await identity.status("PATCH", path, suspend, token="guest") == 403
    assert await identity.status("PATCH", path, suspend, token="outsider") == 404
    done = await identity.ask("PATCH", path, suspend, token="person")
    assert done.json()["account"]["status"] == "suspended"
    body = {"auto_create_repositories": False}
    changed = (await identity.ask("PATCH", path, body)).json()["account"]
    assert changed["auto_create_repositories"] is False
    assert changed["status"] == "suspended"
    for wrong in ({"handle": "x1"}, {"organization": "x"}, {"status": "closed"}):
        assert await identity.status("PATCH", path, wrong, token="person") == 400


@pytest.mark.postgresql
@pytest.mark.parametrize("lock", [lock_organization, account_rows.lock_organization])
async def test_a_lock_of_an_organization_holds_up_no_change_of_its_accounts(
    identity: World, postgresql_database: str, lock: Callable[[Connection, str], None]
) -> None:
    """Who holds the organization may lock an account next, so that must not wait for the former.

    PostgreSQL checks a foreign key again for a row that one transaction updates twice, as the
    creation of a service account with policies does.
    """

    def change(tx: Connection) -> None:
        lock(tx, identity.acme.organization_id)
        with psycopg.connect(postgresql_database) as other:
            other.execute("SET lock_timeout = '50ms'")
            for _ in range(2):
                other.execute("UPDATE accounts SET iam_revision = iam_revision + 1")

    await identity.database.write(change)
