"""Accounts: whose they are, who sees them, who suspends them."""

from __future__ import annotations

from tests.identity_world import World, play

ACCOUNTS = "/v1/accounts"


def reference(organization_id: str, name: str) -> dict[str, str]:
    crn = f"crn:iam::{organization_id}:organization/{organization_id}"
    return {"id": organization_id, "crn": crn, "name": name}


def test_a_person_founds_an_account_with_a_role_of_its_own(database_url: str) -> None:
    async def scenario(world: World) -> None:
        acme = world.acme.organization_id
        body = {"handle": "acme-2", "organization": acme}
        made = await world.make(ACCOUNTS, body, token="person")
        assert made["crn"] == f"crn:iam::{made['id']}:account/acme-2"
        assert made["organization"] == reference(acme, "acme")
        assert (made["status"], made["auto_create_repositories"]) == ("active", True)
        taken = await world.ask("POST", ACCOUNTS, body, token="person")
        assert taken.status_code == 409
        listed = (await world.ask("GET", ACCOUNTS, token="person")).json()
        assert [each["handle"] for each in listed["accounts"]] == ["acme", "acme-2"]
        own = await world.make(ACCOUNTS, {"handle": "mine"}, token="person")
        person = world.acme.person
        assert own["organization"] == reference(person.organization_id, person.email)
        foreign = body | {"handle": "x1", "organization": world.globex.organization_id}
        assert (await world.ask("POST", ACCOUNTS, foreign, token="person")).status_code == 404
        for handle in ("X1", "x", "a--b", "-a", "a.b", "x\n"):
            wrong = await world.ask("POST", ACCOUNTS, {"handle": handle}, token="person")
            assert wrong.json()["error"]["params"]["field"] == "handle"

    play(database_url, scenario)


def test_a_program_founds_accounts_in_its_own_organization(database_url: str) -> None:
    async def scenario(world: World) -> None:
        made = await world.make(ACCOUNTS, {"handle": "second"})
        owner = reference(world.acme.organization_id, "acme")
        assert made["organization"] == owner
        foreign = {"handle": "third", "organization": world.globex.organization_id}
        assert (await world.ask("POST", ACCOUNTS, foreign)).status_code == 404
        await world.program("ci")
        assert (await world.ask("POST", ACCOUNTS, foreign, token="ci")).status_code == 403
        seen = await world.ask("GET", f"{ACCOUNTS}/{made['id']}")
        assert seen.status_code == 404  # the account is another, whoever founded it
        listed = (await world.ask("GET", ACCOUNTS)).json()
        assert [each["handle"] for each in listed["accounts"]] == ["acme"]
        assert listed["accounts"][0]["organization"] == owner
        path = f"{ACCOUNTS}/{world.acme.account_id}"
        for body in (None, {"auto_create_repositories": False}):
            answer = await world.ask("GET" if body is None else "PATCH", path, body)
            assert answer.json()["account"]["organization"] == owner

    play(database_url, scenario)


def test_only_an_owner_suspends_an_account(database_url: str) -> None:
    async def scenario(world: World) -> None:
        guest = await world.person("guest")
        code = await world.invite(guest.email)
        path = f"{ACCOUNTS}/{world.acme.account_id}"
        suspend = {"status": "suspended"}
        assert (await world.ask("PATCH", path, suspend)).status_code == 403
        assert (await world.ask("PATCH", path, suspend, token="guest")).status_code == 404
        await world.accept(code, token="guest")
        assert (await world.ask("GET", path, token="guest")).status_code == 200
        assert (await world.ask("PATCH", path, suspend, token="guest")).status_code == 403
        assert (await world.ask("PATCH", path, suspend, token="outsider")).status_code == 404
        done = await world.ask("PATCH", path, suspend, token="person")
        assert done.json()["account"]["status"] == "suspended"
        body = {"auto_create_repositories": False}
        changed = (await world.ask("PATCH", path, body)).json()["account"]
        assert changed["auto_create_repositories"] is False
        assert changed["status"] == "suspended"
        for wrong in ({"handle": "x1"}, {"organization": "x"}, {"status": "closed"}):
            assert (await world.ask("PATCH", path, wrong, token="person")).status_code == 400

    play(database_url, scenario)
