"""Organizations, their members and invitations: a matter of persons."""

from __future__ import annotations

from tests.identity_world import World, play

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


def test_an_organization_lives(database_url: str) -> None:
    async def scenario(world: World) -> None:
        made = await world.make(ORGANIZATIONS, {"name": "Büro"}, token="person")
        crn = f"crn:iam::{made['id']}:organization/{made['id']}"
        assert (made["crn"], made["name"], made["role"]) == (crn, "Büro", "owner")
        assert not made["is_personal"]
        path = f"{ORGANIZATIONS}/{made['id']}"
        renamed = await world.ask("PATCH", path, {"name": "Office"}, token="person")
        assert renamed.json()["organization"]["name"] == "Office"
        listed = (await world.ask("GET", ORGANIZATIONS, token="person")).json()
        assert [each["name"] for each in listed["organizations"]] == [
            "person@example.org",
            "acme",
            "Office",
        ]
        assert listed["meta"]["total"] == 3
        for status in (204, 404):
            assert (await world.ask("DELETE", path, token="person")).status_code == status
        for owned in (world.acme.organization_id, world.acme.person.organization_id):
            refused = await world.ask("DELETE", f"{ORGANIZATIONS}/{owned}", token="person")
            assert refused.status_code == 409

    play(database_url, scenario)


def test_only_persons_have_to_do_with_organizations(database_url: str) -> None:
    """I11, S7: a service account may do everything in its account, and nothing here."""

    async def scenario(world: World) -> None:
        path = f"{ORGANIZATIONS}/{world.acme.organization_id}"
        for method, target, body in (
            ("POST", ORGANIZATIONS, {"name": "x"}),
            ("GET", ORGANIZATIONS, None),
            ("GET", path, None),
            ("PATCH", path, {"name": "x"}),
            ("DELETE", path, None),
            ("POST", f"{path}/accept", {"code": "x"}),
            ("GET", f"{path}/invitations", None),
            ("POST", f"{path}/switch", None),
            ("POST", f"{path}/invitations", {"email": "x@example.org"}),
            ("GET", f"{path}/members", None),
            ("DELETE", f"{path}/members/{world.acme.person.id}", None),
            ("GET", "/v1/users/me", None),
        ):
            answer = await world.ask(method, target, body)
            assert answer.status_code == 403, (method, target)

    play(database_url, scenario)


def test_an_invitation_gives_nothing_until_it_is_accepted(database_url: str) -> None:
    async def scenario(world: World) -> None:
        guest = await world.person("guest")
        acme = world.acme.organization_id
        path = f"{ORGANIZATIONS}/{acme}"
        assert await statuses(world, "guest", acme) == [404] * 4
        code = await world.invite("Guest@Example.org")
        assert await statuses(world, "guest", acme) == [404] * 4
        seen = (await world.ask("GET", ORGANIZATIONS, token="guest")).json()
        assert [each["name"] for each in seen["organizations"]] == [guest.email]
        assert (await world.ask("POST", f"{path}/switch", token="guest")).status_code == 404

        accepted = await world.accept(code, token="guest")
        assert accepted.json()["organization"]["status"] == "active"
        assert await statuses(world, "guest", acme) == [200, 200, 403, 403]
        members = (await world.ask("GET", f"{path}/members", token="guest")).json()["members"]
        assert {each["user"]["name"] for each in members} == {
            "guest@example.org",
            "person@example.org",
        }
        member = f"{path}/members/{guest.id}"
        own = await world.ask("PATCH", member, {"role": "owner"}, token="guest")
        assert own.status_code == 403
        raised = await world.ask("PATCH", member, {"role": "owner"}, token="person")
        assert raised.json()["member"]["role"] == "owner"
        assert await statuses(world, "guest", acme) == [200, 200, 200, 201]
        gone = await world.ask("DELETE", member, token="person")
        assert gone.status_code == 204
        assert await statuses(world, "guest", acme) == [404] * 4

    play(database_url, scenario)


def test_whoever_joined_may_leave(database_url: str) -> None:
    async def scenario(world: World) -> None:
        guest = await world.person("guest")
        path = f"{ORGANIZATIONS}/{world.acme.organization_id}"
        await world.join("guest")
        for status in (204, 404):
            left = await world.ask("DELETE", f"{path}/members/{guest.id}", token="guest")
            assert left.status_code == status

    play(database_url, scenario)


def test_an_organization_keeps_an_owner(database_url: str) -> None:
    async def scenario(world: World) -> None:
        person = world.acme.person
        for organization in (world.acme.organization_id, person.organization_id):
            path = f"{ORGANIZATIONS}/{organization}/members/{person.id}"
            assert (await world.ask("DELETE", path, token="person")).status_code == 409
            demoted = await world.ask("PATCH", path, {"role": "billing"}, token="person")
            assert demoted.status_code == 409

    play(database_url, scenario)


def test_leaving_takes_the_roles_in_its_accounts_along(database_url: str) -> None:
    async def scenario(world: World) -> None:
        guest = await world.person("guest")
        path = f"{ORGANIZATIONS}/{world.acme.organization_id}"
        code = await world.invite(guest.email)
        assignments = f"/v1/roles/{world.acme.role_id}/assignments"
        early = await world.ask("POST", assignments, {"user": guest.id})
        assert early.status_code == 404
        await world.accept(code, token="guest")
        await world.make(assignments, {"user": guest.id})
        assert (await world.ask("GET", assignments)).json()["meta"]["total"] == 2
        await world.ask("DELETE", f"{path}/members/{guest.id}", token="guest")
        assert (await world.ask("GET", assignments)).json()["meta"]["total"] == 1

    play(database_url, scenario)


def test_switching_says_where_a_session_works(database_url: str) -> None:
    async def scenario(world: World) -> None:
        person, acme = world.acme.person, world.acme.organization_id

        async def current() -> str:
            me = (await world.ask("GET", "/v1/users/me", token="person")).json()["user"]
            assert me["email"] == "person@example.org"
            found: str = me["organization"]["id"]
            name = "acme" if found == acme else person.email
            crn = f"crn:iam::{found}:organization/{found}"
            assert me["organization"] == {"id": found, "crn": crn, "name": name}
            return found

        assert await current() == person.organization_id
        switched = await world.ask("POST", f"{ORGANIZATIONS}/{acme}/switch", token="person")
        assert switched.json()["organization"]["id"] == acme
        assert await current() == acme
        account = await world.make("/v1/accounts", {"handle": "second"}, token="person")
        assert account["organization"]["id"] == acme
        other = f"{ORGANIZATIONS}/{world.globex.organization_id}/switch"
        assert (await world.ask("POST", other, token="person")).status_code == 404
        assert await current() == acme

    play(database_url, scenario)
