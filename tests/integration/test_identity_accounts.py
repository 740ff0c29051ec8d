"""Accounts: whose they are, who sees them, who suspends them."""

from __future__ import annotations

from tests.databases import on_both_databases
from tests.identity_world import World

ACCOUNTS = "/v1/accounts"


def reference(organization_id: str, name: str) -> dict[str, str]:
    crn = f"crn:iam::{organization_id}:organization/{organization_id}"
    return {"id": organization_id, "crn": crn, "name": name}


@on_both_databases
async def test_a_person_founds_an_account_with_a_role_of_its_own(identity: World) -> None:
    acme = identity.acme.organization_id
    body = {"handle": "acme-2", "organization": acme}
    made = await identity.make(ACCOUNTS, body, token="person")
    assert made["crn"] == f"crn:iam::{made['id']}:account/acme-2"
    assert made["organization"] == reference(acme, "acme")
    assert (made["status"], made["auto_create_repositories"]) == ("active", True)
    taken = await identity.ask("POST", ACCOUNTS, body, token="person")
    assert taken.status_code == 409
    listed = (await identity.ask("GET", ACCOUNTS, token="person")).json()
    assert [each["handle"] for each in listed["accounts"]] == ["acme", "acme-2"]
    own = await identity.make(ACCOUNTS, {"handle": "mine"}, token="person")
    person = identity.acme.person
    assert own["organization"] == reference(person.organization_id, person.email)
    foreign = body | {"handle": "x1", "organization": identity.globex.organization_id}
    assert (await identity.ask("POST", ACCOUNTS, foreign, token="person")).status_code == 404
    for handle in ("X1", "x", "a--b", "-a", "a.b", "x\n"):
        wrong = await identity.ask("POST", ACCOUNTS, {"handle": handle}, token="person")
        assert wrong.json()["error"]["params"]["field"] == "handle"


async def test_a_program_founds_accounts_in_its_own_organization(identity: World) -> None:
    made = await identity.make(ACCOUNTS, {"handle": "second"})
    owner = reference(identity.acme.organization_id, "acme")
    assert made["organization"] == owner
    foreign = {"handle": "third", "organization": identity.globex.organization_id}
    assert (await identity.ask("POST", ACCOUNTS, foreign)).status_code == 404
    await identity.program("ci")
    assert (await identity.ask("POST", ACCOUNTS, foreign, token="ci")).status_code == 403
    seen = await identity.ask("GET", f"{ACCOUNTS}/{made['id']}")
    assert seen.status_code == 404  # the account is another, whoever founded it
    listed = (await identity.ask("GET", ACCOUNTS)).json()
    assert [each["handle"] for each in listed["accounts"]] == ["acme"]
    assert listed["accounts"][0]["organization"] == owner
    path = f"{ACCOUNTS}/{identity.acme.account_id}"
    for body in (None, {"auto_create_repositories": False}):
        answer = await identity.ask("GET" if body is None else "PATCH", path, body)
        assert answer.json()["account"]["organization"] == owner


async def test_only_an_owner_suspends_an_account(identity: World) -> None:
    guest = await identity.person("guest")
    code = await identity.invite(guest.email)
    path = f"{ACCOUNTS}/{identity.acme.account_id}"
    suspend = {"status": "suspended"}
    assert (await identity.ask("PATCH", path, suspend)).status_code == 403
    assert (await identity.ask("PATCH", path, suspend, token="guest")).status_code == 404
    await identity.accept(code, token="guest")
    assert (await identity.ask("GET", path, token="guest")).status_code == 200
    assert (await identity.ask("PATCH", path, suspend, token="guest")).status_code == 403
    assert (await identity.ask("PATCH", path, suspend, token="outsider")).status_code == 404
    done = await identity.ask("PATCH", path, suspend, token="person")
    assert done.json()["account"]["status"] == "suspended"
    body = {"auto_create_repositories": False}
    changed = (await identity.ask("PATCH", path, body)).json()["account"]
    assert changed["auto_create_repositories"] is False
    assert changed["status"] == "suspended"
    for wrong in ({"handle": "x1"}, {"organization": "x"}, {"status": "closed"}):
        assert (await identity.ask("PATCH", path, wrong, token="person")).status_code == 400
