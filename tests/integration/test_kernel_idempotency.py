"""``Idempotency-Key``: the same request twice is one effect and one outcome (bad input, E)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate
from uuid import uuid4

import httpx
import pytest

from cloudcore.db.base import Connection, P, T
from cloudcore.errors import Unavailable
from cloudcore.web.idempotency import KEPT_SECONDS, forget_expired
from tests.control_plane import Options, World, count_rows, play, raw_engine
from tests.dying import PassingDatabase

A = {"name": "a"}
DENY_CREATE = {"effect": "deny", "actions": ["test:CreateThing"], "resources": ["crn:*thing/a"]}
ALLOW = {"effect": "allow", "actions": ["*"], "resources": ["*"]}


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


async def create(
    world: World, name: str = "a", key: str | None = "k", token: str = "writer"
) -> httpx.Response:
    return await world.ask("POST", "/v1/things", {"name": name}, key=key, token=token)


def assert_replayed(first: httpx.Response, again: httpx.Response) -> None:
    assert again.status_code == first.status_code
    assert again.content == first.content
    for name in ("content-type", "location"):
        assert again.headers.get(name) == first.headers.get(name)
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert again.headers["x-request-id"] != first.headers["x-request-id"]


def test_a_retry_has_the_outcome_of_the_first_time(database_url: str) -> None:
    async def scenario(world: World) -> None:
        first = await create(world)
        assert first.status_code == 201
        assert_replayed(first, await create(world))
        assert_replayed(first, await create(world))

    play(database_url, scenario)
    assert count_rows(database_url, "things") == 1


def test_without_a_key_a_repeat_is_a_request_of_its_own(sqlite_database: str) -> None:
    async def scenario(world: World) -> None:
        assert (await create(world, key=None)).status_code == 201
        assert code(await create(world, key=None)) == "CONFLICT"

    play(sqlite_database, scenario)
    assert count_rows(sqlite_database, "idempotency_records") == 0


def test_a_secret_is_shown_again_under_its_key_only_and_sealed_at_rest(database_url: str) -> None:
    async def scenario(world: World) -> str:
        path = f"/v1/things/{(await create(world)).json()['thing']['id']}/parts"
        first = await world.ask("POST", path, key="s")
        assert_replayed(first, await world.ask("POST", path, key="s"))
        secret = str(first.json()["part"]["secret"])
        assert secret not in (await world.ask("POST", path)).text
        return secret

    secret = play(database_url, scenario)
    with raw_engine(database_url) as engine, engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM idempotency_records").fetchall()
    assert len(rows) == 2
    assert secret.encode() not in repr(rows).encode()
    assert not any(secret.encode() in bytes(row.outcome_sealed) for row in rows)


def test_a_refusal_that_is_an_outcome_is_kept(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await create(world, key="first")
        nothing = f"/v1/things/{uuid4()}/parts"
        for method, path, body, status in [
            ("POST", "/v1/things", A, 409),
            ("POST", "/v1/things", {"name": "A"}, 400),
            ("POST", "/v1/things", b"{", 400),
            ("POST", "/v1/things", None, 400),
            ("POST", nothing, None, 404),
        ]:
            key = f"{status} {body!r}"
            first = await world.ask(method, path, body, key=key)
            assert first.status_code == status
            again = await world.ask(method, path, body, key=key)
            assert_replayed(first, again)
            assert again.json()["error"]["request_id"] == first.headers["x-request-id"]

    play(database_url, scenario)


def test_a_refusal_outlives_its_reason(sqlite_database: str) -> None:
    async def scenario(world: World) -> None:
        made = (await create(world)).json()["thing"]["id"]
        refused = await create(world, key="k2")
        assert code(refused) == "CONFLICT"
        assert (await world.ask("DELETE", f"/v1/things/{made}")).status_code == 204
        assert_replayed(refused, await create(world, key="k2"))
        assert (await create(world, key="k3")).status_code == 201

    play(sqlite_database, scenario)


@pytest.mark.parametrize("status", [403, 413, 415])
def test_a_refusal_that_says_nothing_of_the_outcome_is_not_kept(
    sqlite_database: str, status: int
) -> None:
    async def scenario(world: World) -> None:
        headers = [("Content-Type", "text/plain")] if status == 415 else []
        body: object = b" " * (1 << 20) + b"{}" if status == 413 else A
        if status == 403:
            world.tokens.restrict("writer", ALLOW, DENY_CREATE)
        refused = await world.ask("POST", "/v1/things", body, key="k", headers=headers)
        assert refused.status_code == status
        world.tokens.restrict("writer", ALLOW)
        assert (await create(world)).status_code == 201

    play(sqlite_database, scenario)


def test_another_request_under_the_key_is_refused(database_url: str) -> None:
    async def scenario(world: World) -> None:
        first = await create(world)
        refused = await create(world, name="b")
        assert (refused.status_code, code(refused)) == (422, "IDEMPOTENCY_KEY_REUSED")
        assert (await world.ask("POST", "/v1/things?x=1", A, key="k")).status_code == 422
        spaced = b'{"name": "a" }'
        assert (await world.ask("POST", "/v1/things", spaced, key="k")).status_code == 422
        assert_replayed(first, await create(world))
        one, other = first.json()["thing"]["id"], (await create(world, "b", "b")).json()
        part = await world.ask("POST", f"/v1/things/{one}/parts", key="k")
        assert part.status_code == 201
        moved = await world.ask("POST", f"/v1/things/{other['thing']['id']}/parts", key="k")
        assert (moved.status_code, code(moved)) == (422, "IDEMPOTENCY_KEY_REUSED")

    play(database_url, scenario)
    assert count_rows(database_url, "things") == 2
    assert count_rows(database_url, "parts") == 1


def test_a_key_is_its_principals_own(database_url: str) -> None:
    async def scenario(world: World) -> None:
        world.tokens.add("colleague")
        mine = await create(world)
        theirs = await create(world, token="stranger")
        assert theirs.status_code == 201
        assert theirs.json()["thing"]["id"] != mine.json()["thing"]["id"]
        assert code(await create(world, token="colleague")) == "CONFLICT"

    play(database_url, scenario)


def test_permission_is_checked_before_a_replay(sqlite_database: str) -> None:
    """E12, also where the action as such is still allowed."""

    async def scenario(world: World) -> None:
        first = await create(world)
        for statements in [(), (ALLOW, DENY_CREATE)]:
            world.tokens.restrict("writer", *statements)
            refused = await create(world)
            assert (refused.status_code, code(refused)) == (403, "ACCESS_DENIED")
            assert "idempotency-replayed" not in refused.headers
        world.tokens.restrict("writer", ALLOW)
        assert_replayed(first, await create(world))
        unknown = await world.ask("POST", "/v1/things", A, key="k", token="nobody")
        assert unknown.status_code == 401

    play(sqlite_database, scenario)


def test_a_replay_needs_nothing_that_is_gone(sqlite_database: str) -> None:
    """The thing that a part was made for is deleted; the retry still learns of the part."""

    async def scenario(world: World) -> None:
        thing = (await create(world)).json()["thing"]["id"]
        first = await world.ask("POST", f"/v1/things/{thing}/parts", key="p")
        assert (await world.ask("DELETE", f"/v1/things/{thing}")).status_code == 204
        assert_replayed(first, await world.ask("POST", f"/v1/things/{thing}/parts", key="p"))

    play(sqlite_database, scenario)


def test_a_key_is_honoured_for_a_day(database_url: str) -> None:
    async def scenario(world: World) -> None:
        first = await create(world)
        world.pass_time(KEPT_SECONDS - 1)
        assert_replayed(first, await create(world))
        world.pass_time(1)
        assert code(await create(world)) == "CONFLICT"  # run anew, against the thing it made
        assert (await create(world, "b", "k2")).status_code == 201
        world.pass_time(KEPT_SECONDS)
        forgotten = await world.database.write(forget_expired, world.now)
        assert forgotten == 2
        assert await world.database.write(forget_expired, world.now) == 0

    play(database_url, scenario)
    assert count_rows(database_url, "idempotency_records") == 0


@pytest.mark.parametrize("keys", [("",), ("k" * 256,), ("\xe9",), ("k", "k")])
def test_a_malformed_key_is_refused_and_changes_nothing(
    sqlite_database: str, keys: tuple[str, ...]
) -> None:
    async def scenario(world: World) -> None:
        headers = [("Idempotency-Key", key) for key in keys]
        refused = await world.ask("POST", "/v1/things", A, headers=headers)
        assert (refused.status_code, code(refused)) == (400, "INVALID_INPUT")
        assert refused.json()["error"]["params"]["field"] == "Idempotency-Key"

    play(sqlite_database, scenario)
    assert count_rows(sqlite_database, "things") == 0
    assert count_rows(sqlite_database, "idempotency_records") == 0


def test_a_quoted_key_is_another_key(sqlite_database: str) -> None:
    async def scenario(world: World) -> None:
        assert (await create(world, key="k" * 255)).status_code == 201
        assert (await create(world, "b", '"k"')).status_code == 201
        assert (await create(world, "c", "k")).status_code == 201

    play(sqlite_database, scenario)


def test_operations_that_take_no_key_ignore_it(sqlite_database: str) -> None:
    async def scenario(world: World) -> None:
        path = f"/v1/things/{(await create(world)).json()['thing']['id']}"
        for description in ("x", "y"):
            changed = await world.ask("PATCH", path, {"description": description}, key="k")
            assert changed.json()["thing"]["description"] == description

    play(sqlite_database, scenario)
    assert count_rows(sqlite_database, "idempotency_records") == 1


class Uncertain(PassingDatabase):
    """Loses its connection while the first COMMIT is under way."""

    took_effect = True
    is_well = False

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self.is_well:
            return await super().write(change, *args, **kwargs)
        self.is_well = True
        if self.took_effect:
            await super().write(change, *args, **kwargs)
        raise Unavailable("nobody knows whether COMMIT took effect")


class UncertainToo(Uncertain):
    """The same, but it was not."""

    took_effect = False


@pytest.mark.parametrize("kind", [Uncertain, UncertainToo])
def test_a_commit_of_unknown_outcome_can_be_retried(
    database_url: str, kind: type[Uncertain]
) -> None:
    """Fault D2."""

    async def scenario(world: World) -> None:
        lost = await create(world)
        assert (lost.status_code, code(lost)) == (503, "SERVICE_UNAVAILABLE")
        assert int(lost.headers["retry-after"]) > 0
        again = await create(world)
        assert again.status_code == 201
        assert ("idempotency-replayed" in again.headers) == kind.took_effect

    play(database_url, scenario, Options(wrap=kind))
    assert count_rows(database_url, "things") == 1
