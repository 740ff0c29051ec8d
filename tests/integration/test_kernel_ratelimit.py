"""Limited endpoints: counts in headers, windows that forging does not open."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx

from cloudcore.web.rate_limits import Budget, forget_ended
from tests.control_plane import Options, World, count_rows, open_world
from tests.databases import on_both_databases

LIMIT = 3


async def weather(
    world: World, *forwarded: str, token: str | None = None, method: str = "GET"
) -> httpx.Response:
    headers = [("X-Forwarded-For", value) for value in forwarded]
    return await world.ask(method, "/v1/weather", token=token, headers=headers)


def rate_limits(answer: httpx.Response) -> tuple[int, int, int]:
    limit, remaining, reset = (
        int(answer.headers[f"x-ratelimit-{name}"]) for name in ("limit", "remaining", "reset")
    )
    return limit, remaining, reset


@on_both_databases
async def test_the_headers_tell_the_window(plane: World) -> None:
    for remaining in (2, 1, 0):
        answer = await weather(plane)
        assert answer.status_code == 200
        assert rate_limits(answer) == (LIMIT, remaining, 60)
    plane.pass_time(20)
    refused = await weather(plane)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "RATE_LIMITED"
    assert rate_limits(refused) == (LIMIT, 0, 40)
    assert refused.headers["retry-after"] == "40"
    plane.pass_time(39.5)
    sooner = await weather(plane)
    assert (sooner.status_code, sooner.headers["retry-after"]) == (429, "60")
    plane.pass_time(60)
    assert rate_limits(await weather(plane)) == (LIMIT, 2, 60)


async def test_many_at_once_share_one_budget(plane: World, database_url: str) -> None:
    answers = await asyncio.gather(*(weather(plane) for _ in range(20)))
    assert Counter(answer.status_code for answer in answers) == {200: LIMIT, 429: 17}
    let_in = [answer for answer in answers if answer.status_code == 200]
    assert sorted(rate_limits(answer)[1] for answer in let_in) == [0, 1, 2]
    assert count_rows(database_url, "rate_windows") == 1


async def test_an_address_is_the_peers_or_what_a_trusted_proxy_says(sqlite_database: str) -> None:
    async with open_world(sqlite_database, Options(proxies=("10.0.0.0/8",))) as world:
        answers = [await weather(world, f"192.0.2.{number}") for number in range(100)]
        assert Counter(answer.status_code for answer in answers) == {200: LIMIT, 429: 97}
        assert count_rows(sqlite_database, "rate_windows") == 1
        world.peer = "10.0.0.1"
        for address in ("192.0.2.1", "192.0.2.2"):
            assert rate_limits(await weather(world, f"198.51.100.1, {address}"))[1] == 2
        assert count_rows(sqlite_database, "rate_windows") == 3


async def test_an_ipv6_network_is_one_subject_and_who_signs_in_another(plane: World) -> None:
    for peer, token, remaining in (
        ("2001:db8::1", None, 2),
        ("2001:db8::2", None, 1),
        ("2001:db8:0:1::1", None, 2),
        ("198.51.100.7", "writer", 2),
        ("203.0.113.1", "writer", 1),
        ("203.0.113.1", "stranger", 2),
        ("203.0.113.1", None, 2),
    ):
        plane.peer = peer
        assert rate_limits(await weather(plane, token=token))[1] == remaining, (peer, token)


async def test_a_credential_that_is_not_valid_is_nobodys(plane: World) -> None:
    """It opens no window of its own, and does not keep anyone out."""
    assert rate_limits(await weather(plane))[1] == 2
    unknown = await weather(plane, token="nobody")
    assert unknown.status_code == 200
    assert rate_limits(unknown)[1] == 1
    basic = [("Authorization", "Basic dDp4"), ("Authorization", "Bearer a b")]
    answer = await plane.ask("GET", "/v1/weather", token=None, headers=basic)
    assert rate_limits(answer)[1] == 0
    refused = await weather(plane, token="nobody")
    assert refused.status_code == 429
    assert "www-authenticate" not in refused.headers


async def test_a_head_is_counted_as_the_get_it_is_and_nothing_else_is(
    plane: World, sqlite_database: str
) -> None:
    assert "x-ratelimit-limit" not in (await plane.ask("GET", "/v1/things")).headers
    assert count_rows(sqlite_database, "rate_windows") == 0
    for status in (*[200] * LIMIT, 429):
        assert (await weather(plane, method="HEAD")).status_code == status
    assert (await weather(plane)).status_code == 429


async def test_windows_that_ended_are_forgotten(database_url: str) -> None:
    async with open_world(
        database_url, Options(budget=Budget(limit=1, window_seconds=60))
    ) as world:
        await weather(world)
        assert await world.database.write(forget_ended, world.now) == 0
        world.pass_time(60)
        assert await world.database.write(forget_ended, world.now) == 1
