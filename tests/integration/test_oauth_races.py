"""Codes and refresh tokens when many come at once: one use is one use.

``SOAK=20`` in the environment races twenty times as many codes and tokens.
"""

from __future__ import annotations

import asyncio

from tests.databases import on_both_databases
from tests.integration.oauth_world import World
from tests.soak import time_limit, times

pytestmark = on_both_databases

EMAIL = "ann@example.com"
PARALLEL = 50
RACES = times(7)


@time_limit(120)
async def test_of_fifty_redemptions_of_one_code_at_most_one_gives_a_token(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    won = 0
    for race in range(RACES):
        oauth.pass_time(31)  # ten attempts to sign in are let through in five minutes
        code = await oauth.sign_in(EMAIL)
        # At once, a second use comes before the first one's answer, and none gets a token. So
        # in every other race the first has its answer, and the others race to end its session.
        first = [await oauth.redeem(code)] if race % 2 else []
        rest = (oauth.redeem(code) for _ in range(PARALLEL - len(first)))
        answers = [*first, *await asyncio.gather(*rest)]
        given = [answer.json() for answer in answers if answer.status_code == 200]
        won += len(given)
        refused = [answer.json()["error"] for answer in answers if answer.status_code != 200]
        assert len(given) <= 1
        assert refused == ["invalid_grant"] * (PARALLEL - len(given))
        for made in given:  # the others showed that two parties hold the code
            assert (await oauth.who(made["access_token"])).status_code == 401
            assert (await oauth.refresh(made["refresh_token"])).status_code == 400
    assert won >= RACES // 2


@time_limit(120)
async def test_of_fifty_refreshes_by_one_token_at_most_one_succeeds(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    for _ in range(RACES):
        oauth.pass_time(31)
        _, refresh = await oauth.signed_in(EMAIL)
        answers = await asyncio.gather(*(oauth.refresh(refresh) for _ in range(PARALLEL)))
        given = [answer.json() for answer in answers if answer.status_code == 200]
        assert len(given) == 1
        assert (await oauth.who(given[0]["access_token"])).status_code == 401
        assert (await oauth.refresh(given[0]["refresh_token"])).status_code == 400


async def test_wrong_and_right_attempts_at_once_give_at_most_one_token(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    code = await oauth.sign_in(EMAIL)
    wrong = [oauth.redeem(code, code_verifier="x" * 43) for _ in range(10)]
    right = [oauth.redeem(code) for _ in range(10)]
    answers = await asyncio.gather(
        *(each for pair in zip(wrong, right, strict=True) for each in pair)
    )
    assert sum(answer.status_code == 200 for answer in answers) <= 1
    assert all(answer.status_code == 400 for answer in answers[::2])
