"""Codes and refresh tokens: for one use, spent by the attempt."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

import httpx
import pytest

from cloudcore.errors import Unauthenticated
from cloudcore.identity.oauth.sessions import (
    CODE_SECONDS,
    OUT_OF_BAND,
    SESSION_SECONDS,
    CodeDestination,
    new_code,
)
from cloudcore.identity.oauth.sign_in import add_code_of
from cloudcore.identity.rows.users import USERS
from tests.databases import on_both_databases
from tests.integration.oauth_world import VERIFIER, World, challenge

EMAIL = "ann@example.com"


async def refusal(asked: Awaitable[httpx.Response]) -> tuple[int, str]:
    """Return status and error of a request that is refused."""
    answer = await asked
    return answer.status_code, answer.json()["error"]


async def test_a_code_becomes_a_session(oauth: World) -> None:
    user = await oauth.add_user(EMAIL)
    answer = await oauth.redeem(await oauth.sign_in(EMAIL))
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    made = answer.json()
    assert set(made) == {"access_token", "token_type", "expires_in", "refresh_token"}
    assert (made["token_type"], made["expires_in"]) == ("Bearer", 3600)
    who = (await oauth.who(made["access_token"])).json()
    assert (who["kind"], who["id"], who["account_id"]) == ("user", user.id, None)
    assert who["crn"] == f"crn:iam::{user.organization_id}:user/{user.id}"
    assert who["organization_id"] == user.organization_id


WRONG_ATTEMPTS: Final[list[tuple[dict[str, str], str]]] = [
    *(({name: ""}, "invalid_request") for name in ("code_verifier", "redirect_uri", "client_id")),
    *(
        (wrong, "invalid_grant")
        for wrong in (
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
        )
    ),
]


async def test_a_wrong_attempt_spends_the_code(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    for wrong, error in WRONG_ATTEMPTS:
        code = await oauth.sign_in(EMAIL)
        assert await refusal(oauth.redeem(code, **wrong)) == (400, error), wrong
        assert await refusal(oauth.redeem(code)) == (400, "invalid_grant"), wrong


async def test_a_code_lasts_five_minutes(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    first, second = await oauth.sign_in(EMAIL), await oauth.sign_in(EMAIL)
    oauth.pass_time(CODE_SECONDS - 1)
    assert (await oauth.redeem(first)).status_code == 200
    oauth.pass_time(1)
    assert await refusal(oauth.redeem(second)) == (400, "invalid_grant")


async def test_a_second_use_ends_what_the_first_gave(oauth: World) -> None:
    """A code that is used twice may be stolen (RFC 6749 §4.1.2): all its tokens end."""
    await oauth.add_user(EMAIL)
    code = await oauth.sign_in(EMAIL)
    made = (await oauth.redeem(code)).json()
    assert (await oauth.who(made["access_token"])).status_code == 200
    assert await refusal(oauth.redeem(code)) == (400, "invalid_grant")
    assert (await oauth.who(made["access_token"])).status_code == 401
    assert await refusal(oauth.refresh(made["refresh_token"])) == (400, "invalid_grant")


async def test_no_code_is_made_up(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    code = await oauth.sign_in(EMAIL)
    for text in ("eac_" + "A" * 43, code.upper(), code + "A", code[:-1]):
        assert await refusal(oauth.redeem(text)) == (400, "invalid_grant")
    assert (await oauth.redeem(code)).status_code == 200


@on_both_databases
async def test_codes_and_refreshes_end_with_the_person(oauth: World) -> None:
    user = await oauth.add_user(EMAIL)
    code = await oauth.sign_in(EMAIL)
    for ending in (
        "UPDATE sessions SET revoked_at = 1",
        f"UPDATE users SET status = 'suspended' WHERE id = '{user.id}'",
    ):
        access, refresh = await oauth.signed_in(EMAIL)
        await oauth.run(ending)
        assert (await oauth.who(access)).status_code == 401
        assert (await oauth.refresh(refresh)).json()["error"] == "invalid_grant"
    assert (await oauth.redeem(code)).json()["error"] == "invalid_grant"


async def test_a_refresh_token_is_rotated(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    access, refresh = await oauth.signed_in(EMAIL)
    oauth.pass_time(3600)
    assert (await oauth.who(access)).status_code == 401
    answer = await oauth.refresh(refresh)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    made = answer.json()
    assert made["refresh_token"] != refresh
    assert (await oauth.who(made["access_token"])).status_code == 200
    assert (await oauth.refresh(made["refresh_token"])).status_code == 200


async def test_an_old_refresh_token_ends_the_session(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    access, old = await oauth.signed_in(EMAIL)
    new = (await oauth.refresh(old)).json()
    assert await refusal(oauth.refresh(old)) == (400, "invalid_grant")
    for token in (access, new["access_token"]):
        assert (await oauth.who(token)).status_code == 401
    assert (await oauth.refresh(new["refresh_token"])).json()["error"] == "invalid_grant"


async def test_a_session_lasts_thirty_days_after_its_last_refresh(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    _, refresh = await oauth.signed_in(EMAIL)
    for _ in range(3):
        oauth.pass_time(SESSION_SECONDS - 1)
        refresh = (await oauth.refresh(refresh)).json()["refresh_token"]
    oauth.pass_time(SESSION_SECONDS)
    assert (await oauth.refresh(refresh)).json()["error"] == "invalid_grant"


async def test_a_refresh_token_is_good_for_its_client_alone(oauth: World) -> None:
    """RFC 6749 §6, RFC 9700 §4.14; a refused attempt costs the client nothing."""
    await oauth.add_user(EMAIL)
    _, refresh = await oauth.signed_in(EMAIL)
    for named in ({}, {"client_id": "cli"}):
        form = {"grant_type": "refresh_token", "refresh_token": refresh}
        for wrong, error in (
            (form | {"client_id": "console"}, "invalid_grant"),
            (form | {"client_id": "other"}, "invalid_grant"),
            ({"grant_type": "refresh_token", "client_id": "cli"}, "invalid_request"),
        ):
            assert await refusal(oauth.token(wrong)) == (400, error)
        answer = await oauth.token(form | named)
        assert answer.status_code == 200
        refresh = answer.json()["refresh_token"]
    assert (await oauth.refresh(refresh)).status_code == 200


@on_both_databases
async def test_no_code_is_given_for_a_password_that_was_reset_meanwhile(oauth: World) -> None:
    """A check of a password takes long; a reset deletes the codes that are there by then."""
    checked = await oauth.add_user(EMAIL)
    _, code = new_code(checked.id, CodeDestination("cli", OUT_OF_BAND), challenge(), oauth.now)
    reset = checked._replace(password=f"{checked.password}A")
    for changed in (reset, checked._replace(status="suspended")):
        await oauth.database.write(USERS.save, changed)
        with pytest.raises(Unauthenticated):
            await oauth.database.write(add_code_of, checked, code)
    await oauth.database.write(USERS.save, checked)
    await oauth.database.write(add_code_of, checked, code)
