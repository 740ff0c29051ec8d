"""Sessions that a provider began end for good, so that its groups are looked at anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cloudcore.identity.rows import organizations
from cloudcore.identity.rows import sessions as rows
from tests.databases import on_both_databases
from tests.integration.provider_world import ProviderWorld, open_provider_world

DAY = 24 * 3600


async def begin(world: ProviderWorld) -> dict[str, Any]:
    """Sign Zoe in; return the tokens."""
    world.says("subject-1", "zoe@example.org", groups=["devs"])
    answer = await world.exchange(await world.sign_in())
    assert answer.status_code == 200, answer.text
    tokens: dict[str, Any] = answer.json()
    return tokens


async def refresh(world: ProviderWorld, tokens: dict[str, Any], *, status: int = 200) -> Any:  # noqa: ANN401
    form = {"grant_type": "refresh_token", "client_id": "cli"}
    answer = await world.ask_token(form | {"refresh_token": tokens["refresh_token"]})
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_no_refresh_outlasts_the_hours_of_the_provider(
    tmp_path: Path, metadata_url: str
) -> None:
    async with open_provider_world(tmp_path / "data", metadata_url) as world:
        served, acme = world.served, world.served.acme
        assert world.row["session_hours"] == 7 * 24
        statement = {"effect": "allow", "principals": [world.row["crn"]]}
        trust = {"trust_policy": {"version": "1", "statements": [statement]}}
        path = f"/v1/roles/{acme.ids['/v1/roles/{}']}"
        changed = await served.ask("PATCH", path, trust, token=acme.program_token)
        assert changed.status_code == 200
        await world.assign_group("devs")
        weekly = await begin(world)
        await world.change(session_hours=2)

        tokens = await begin(world)
        assert tokens["expires_in"] == 3600
        served.clock.advance(5400)
        tokens = await refresh(world, tokens)
        assert tokens["expires_in"] == 1800
        body = {"role": acme.ids["/v1/roles/{}"], "duration_seconds": 3600}
        token = tokens["access_token"]
        assumed = await served.ask("POST", "/v1/assume-role", body, token=token)
        assert assumed.json()["expires_in"] == 1800
        served.clock.advance(1799)
        tokens = await refresh(world, tokens)
        assert tokens["expires_in"] == 1
        served.clock.advance(1)
        await refresh(world, tokens, status=400)
        me = await served.ask("GET", "/v1/users/me", token=tokens["access_token"])
        assert me.status_code == 401

        # A sign-in of before the change has the hours of then.
        served.clock.advance(6 * DAY)
        weekly = await refresh(world, weekly)
        served.clock.advance(DAY)
        await refresh(world, weekly, status=400)


async def test_hours_are_from_one_to_a_month(tmp_path: Path) -> None:
    async with open_provider_world(tmp_path / "data") as world:
        for hours in (0, 721):
            answer = await world.served.ask(
                "PATCH",
                world.path,
                {"session_hours": hours},
                token=world.served.acme.person_token,
            )
            assert answer.status_code == 400, answer.text


async def test_turning_a_provider_off_ends_what_it_began(tmp_path: Path) -> None:
    async with open_provider_world(tmp_path / "data") as world:
        await check_an_end(world, lambda: world.change(status="inactive"))


@on_both_databases
async def test_deleting_a_provider_ends_what_it_began(tmp_path: Path, metadata_url: str) -> None:
    async with open_provider_world(tmp_path / "data", metadata_url) as world:

        async def delete() -> None:
            token = world.served.acme.person_token
            assert (await world.served.ask("DELETE", world.path, token=token)).status_code == 204

        await check_an_end(world, delete)


async def check_an_end(world: ProviderWorld, end: Callable[[], Awaitable[None]]) -> None:
    """Check that `end` ends the sign-ins of a provider, and the roles that it gave trust for."""
    served, acme = world.served, world.served.acme
    role_id = acme.ids["/v1/roles/{}"]
    statement = {"effect": "allow", "principals": [world.row["crn"]]}
    trust = {"trust_policy": {"version": "1", "statements": [statement]}}
    path = f"/v1/roles/{role_id}"
    assert (await served.ask("PATCH", path, trust, token=acme.program_token)).status_code == 200
    zoe = await begin(world)
    me = (await served.ask("GET", "/v1/users/me", token=zoe["access_token"])).json()["user"]
    await served.make(f"{path}/assignments", {"user": me["id"]}, token=acme.program_token)

    async def assume(token: str) -> str:
        made = await served.ask("POST", "/v1/assume-role", {"role": role_id}, token=token)
        assert made.status_code == 200, made.text
        session: str = made.json()["access_token"]
        return session

    by_password = await world.by_password(me)
    ended = [zoe["access_token"], await assume(zoe["access_token"]), await assume(by_password)]
    page = await world.sign_in()
    served.database.noted.clear()
    await world.exchange(await world.sign_in())
    ran = [each.statement for each in served.database.noted]
    # Whether the provider is active is asked under a lock until the session is there.
    assert ran.index(organizations._LOCK) < ran.index(rows._ADD)

    async def statuses(tokens: list[str]) -> set[int]:
        answers = [await served.ask("GET", path, token=token) for token in tokens]
        return {answer.status_code for answer in answers}

    assert 401 not in await statuses([*ended, by_password, acme.person_token])
    await end()
    assert await statuses(ended) == {401}
    assert 401 not in await statuses([by_password, acme.person_token])
    await refresh(world, zoe, status=400)
    assert (await world.exchange(page)).json()["error"] == "invalid_grant"
