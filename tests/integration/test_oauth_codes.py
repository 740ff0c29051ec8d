"""Codes and refresh tokens: for one use, spent by the attempt (rule I7, O11 to O18, G22)."""

from __future__ import annotations

import pytest

from cloudcore.identity.sessions import CODE_SECONDS, SESSION_SECONDS
from tests.integration.oauth_world import VERIFIER, World, challenge, play

EMAIL = "ann@example.com"


def test_a_code_becomes_a_session(database_url: str) -> None:
    async def scenario(world: World) -> None:
        user = await world.add_user(EMAIL)
        answer = await world.redeem(await world.sign_in(EMAIL))
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        made = answer.json()
        assert set(made) == {"access_token", "token_type", "expires_in", "refresh_token"}
        assert (made["token_type"], made["expires_in"]) == ("Bearer", 3600)
        who = (await world.who(made["access_token"])).json()
        assert (who["kind"], who["id"], who["account_id"]) == ("user", user.id, None)
        assert who["crn"] == f"crn:iam::{user.organization_id}:user/{user.id}"
        assert who["organization_id"] == user.organization_id

    play(database_url, scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        {"code_verifier": "x" * 43},
        {"code_verifier": VERIFIER[:-1]},
        {"code_verifier": "x" * 42},
        {"code_verifier": "x" * 129},
        {"code_verifier": VERIFIER + "!"},
        {"code_verifier": challenge()},
        {"redirect_uri": "http://127.0.0.1/callback"},
        {"redirect_uri": "urn:ietf:wg:oauth:2.0:oob:auto"},
        {"client_id": "other"},
        {"client_id": "CLI"},
    ],
    ids=str,
)
def test_a_wrong_attempt_spends_the_code(sqlite_database: str, wrong: dict[str, str]) -> None:
    """O12, O13, O17, O18: wrong, then right, and both are refused."""

    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        code = await world.sign_in(EMAIL)
        for changes in (wrong, {}):
            answer = await world.redeem(code, **changes)
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")

    play(sqlite_database, scenario)


@pytest.mark.parametrize("name", ["code_verifier", "redirect_uri", "client_id"])
def test_an_attempt_that_lacks_something_spends_the_code_too(
    sqlite_database: str, name: str
) -> None:
    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        code = await world.sign_in(EMAIL)
        answer = await world.redeem(code, **{name: ""})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
        answer = await world.redeem(code)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")

    play(sqlite_database, scenario)


def test_a_code_lasts_five_minutes(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        first, second = await world.sign_in(EMAIL), await world.sign_in(EMAIL)
        world.pass_time(CODE_SECONDS - 1)
        assert (await world.redeem(first)).status_code == 200
        world.pass_time(1)
        answer = await world.redeem(second)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")

    play(database_url, scenario)


def test_a_second_use_ends_what_the_first_gave(database_url: str) -> None:
    """O11."""

    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        code = await world.sign_in(EMAIL)
        made = (await world.redeem(code)).json()
        assert (await world.who(made["access_token"])).status_code == 200
        answer = await world.redeem(code)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
        assert (await world.who(made["access_token"])).status_code == 401
        answer = await world.refresh(made["refresh_token"])
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")

    play(database_url, scenario)


def test_no_code_is_made_up(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        code = await world.sign_in(EMAIL)
        for text in ("eac_" + "A" * 43, code.upper(), code + "A", code[:-1]):
            answer = await world.redeem(text)
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
        assert (await world.redeem(code)).status_code == 200

    play(database_url, scenario)


@pytest.mark.parametrize("table", ["users", "sessions"])
def test_codes_and_refreshes_end_with_the_person(database_url: str, table: str) -> None:
    async def scenario(world: World) -> None:
        user = await world.add_user(EMAIL)
        code = await world.sign_in(EMAIL)
        access, refresh = await world.signed_in(EMAIL)
        if table == "users":
            await world.run(f"UPDATE users SET status = 'suspended' WHERE id = '{user.id}'")
            assert (await world.redeem(code)).json()["error"] == "invalid_grant"
        else:
            await world.run("UPDATE sessions SET revoked_at = 1")
        assert (await world.who(access)).status_code == 401
        assert (await world.refresh(refresh)).json()["error"] == "invalid_grant"

    play(database_url, scenario)


def test_a_refresh_token_is_rotated(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        access, refresh = await world.signed_in(EMAIL)
        world.pass_time(3600)
        assert (await world.who(access)).status_code == 401
        answer = await world.refresh(refresh)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        made = answer.json()
        assert made["refresh_token"] != refresh
        assert (await world.who(made["access_token"])).status_code == 200
        assert (await world.refresh(made["refresh_token"])).status_code == 200

    play(database_url, scenario)


def test_an_old_refresh_token_ends_the_session(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        access, old = await world.signed_in(EMAIL)
        new = (await world.refresh(old)).json()
        answer = await world.refresh(old)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
        for token in (access, new["access_token"]):
            assert (await world.who(token)).status_code == 401
        assert (await world.refresh(new["refresh_token"])).json()["error"] == "invalid_grant"

    play(database_url, scenario)


def test_a_session_lasts_thirty_days_after_its_last_refresh(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        _, refresh = await world.signed_in(EMAIL)
        for _ in range(3):
            world.pass_time(SESSION_SECONDS - 1)
            refresh = (await world.refresh(refresh)).json()["refresh_token"]
        world.pass_time(SESSION_SECONDS)
        assert (await world.refresh(refresh)).json()["error"] == "invalid_grant"

    play(database_url, scenario)


def test_a_refresh_token_is_the_commands_alone(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        _, refresh = await world.signed_in(EMAIL)
        form = {"grant_type": "refresh_token", "refresh_token": refresh}
        answer = await world.token(form | {"client_id": "other"})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
        answer = await world.token({"grant_type": "refresh_token", "client_id": "cli"})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
        assert (await world.token(form)).status_code == 200

    play(database_url, scenario)


def test_a_refresh_token_is_good_for_its_client_alone(database_url: str) -> None:
    """RFC 6749 §6, RFC 9700 §4.14; a refused attempt costs the client nothing."""

    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        _, refresh = await world.signed_in(EMAIL)
        for named in ({}, {"client_id": "cli"}):
            form = {"grant_type": "refresh_token", "refresh_token": refresh}
            answer = await world.token(form | {"client_id": "console"})
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
            answer = await world.token(form | named)
            assert answer.status_code == 200
            refresh = answer.json()["refresh_token"]
        assert (await world.refresh(refresh)).status_code == 200

    play(database_url, scenario)


def test_a_refresh_token_from_before_clients_were_kept_is_bound_by_its_next_use(
    database_url: str,
) -> None:
    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        _, refresh = await world.signed_in(EMAIL)
        await world.run("UPDATE refresh_tokens SET client_id = NULL")
        form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": "console"}
        answer = await world.token(form)
        assert answer.status_code == 200
        refresh = answer.json()["refresh_token"]
        assert (await world.refresh(refresh)).json()["error"] == "invalid_grant"
        assert (await world.token(form | {"refresh_token": refresh})).status_code == 200

    play(database_url, scenario)
