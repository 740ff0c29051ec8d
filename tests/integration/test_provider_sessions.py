"""Sessions that a provider began end for good, so that its groups are looked at anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cloudcore.identity.rows import organizations
from cloudcore.identity.rows import sessions as rows
from tests.databases import on_both_databases
from tests.integration.provider_world import ProviderWorld, open_provider_world, trust_provider

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
        role_id = acme.ids["/v1/roles/{}"]
        await trust_provider(world, role_id)
        await world.assign_group("devs")
        weekly = await begin(world)
        await world.change(session_hours=2)

        tokens = await begin(world)
        assert tokens["expires_in"] == 3600
        served.clock.advance(5400)
        tokens = await refresh(world, tokens)
        assert tokens["expires_in"] == 1800
        assert (await world.assume(role_id, tokens["access_token"]))["expires_in"] == 1800
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
        await check_an_end(world, "PATCH", {"status": "inactive"})


@on_both_databases
async def test_deleting_a_provider_ends_what_it_began(tmp_path: Path, metadata_url: str) -> None:
    async with open_provider_world(tmp_path / "data", metadata_url) as world:
        await check_an_end(world, "DELETE")


async def check_an_end(world: ProviderWorld, method: str, body: object = None) -> None:
    """Check that a change ends the sign-ins of a provider, and the roles that it gave trust for."""
    served, acme = world.served, world.served.acme
    role_id = acme.ids["/v1/roles/{}"]
    await trust_provider(world, role_id)
    path = f"/v1/roles/{role_id}"
    zoe = await begin(world)
    me = (await served.ask("GET", "/v1/users/me", token=zoe["access_token"])).json()["user"]
    await served.make(f"{path}/assignments", {"user": me["id"]}, token=acme.program_token)

    by_password = await world.by_password(me)
    sources = zoe["access_token"], by_password
    assumed = [(await world.assume(role_id, token))["access_token"] for token in sources]
    ended = [zoe["access_token"], *assumed]
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
    assert (await served.ask(method, world.path, body, token=acme.person_token)).is_success
    assert await statuses(ended) == {401}
    assert 401 not in await statuses([by_password, acme.person_token])
    await refresh(world, zoe, status=400)
    assert (await world.exchange(page)).json()["error"] == "invalid_grant"
