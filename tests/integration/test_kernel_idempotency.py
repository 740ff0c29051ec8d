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
from tests.control_plane import Options, World, count_rows, open_world, raw_engine
from tests.databases import on_both_databases
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


async def test_a_retry_has_the_outcome_of_the_first_time(plane: World, database_url: str) -> None:
    first = await create(plane)
    assert first.status_code == 201
    assert_replayed(first, await create(plane))
    assert_replayed(first, await create(plane))
    assert count_rows(database_url, "things") == 1


async def test_a_secret_is_shown_again_under_its_key_only_and_sealed_at_rest(
    database_url: str,
) -> None:
    async with open_world(database_url) as plane:
        path = f"/v1/things/{(await create(plane)).json()['thing']['id']}/parts"
        first = await plane.ask("POST", path, key="s")
        assert_replayed(first, await plane.ask("POST", path, key="s"))
        secret = str(first.json()["part"]["secret"])
        assert secret not in (await plane.ask("POST", path)).text
    with raw_engine(database_url) as engine, engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM idempotency_records").fetchall()
    assert len(rows) == 2
    assert secret.encode() not in repr(rows).encode()
    assert not any(secret.encode() in bytes(row.outcome_sealed) for row in rows)


async def test_a_refusal_that_is_an_outcome_is_kept(plane: World) -> None:
    await create(plane, key="first")
    nothing = f"/v1/things/{uuid4()}/parts"
    for method, path, body, status in [
        ("POST", "/v1/things", A, 409),
        ("POST", "/v1/things", {"name": "A"}, 400),
        ("POST", "/v1/things", b"{", 400),
        ("POST", "/v1/things", None, 400),
        ("POST", nothing, None, 404),
    ]:
        key = f"{status} {body!r}"
        first = await plane.ask(method, path, body, key=key)
        assert first.status_code == status
        again = await plane.ask(method, path, body, key=key)
        assert_replayed(first, again)
        assert again.json()["error"]["request_id"] == first.headers["x-request-id"]


async def test_a_refusal_outlives_its_reason(plane: World) -> None:
    made = (await create(plane)).json()["thing"]["id"]
    refused = await create(plane, key="k2")
    assert code(refused) == "CONFLICT"
    assert (await plane.ask("DELETE", f"/v1/things/{made}")).status_code == 204
    assert_replayed(refused, await create(plane, key="k2"))
    assert (await create(plane, key="k3")).status_code == 201


async def test_a_refusal_that_says_nothing_of_the_outcome_is_not_kept(plane: World) -> None:
    plane.tokens.restrict("writer", ALLOW, DENY_CREATE)
    text, large = [("Content-Type", "text/plain")], b" " * (1 << 20) + b"{}"
    for status, body, headers in ((403, A, []), (413, large, []), (415, A, text)):
        refused = await plane.ask("POST", "/v1/things", body, key=f"{status}", headers=headers)
        assert refused.status_code == status
        plane.tokens.restrict("writer", ALLOW)
        made = await create(plane, {403: "a", 413: "b", 415: "c"}[status], f"{status}")
        assert made.status_code == 201


async def test_another_request_under_the_key_is_refused(plane: World, sqlite_database: str) -> None:
    first = await create(plane)
    refused = await create(plane, name="b")
    assert (refused.status_code, code(refused)) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert (await plane.ask("POST", "/v1/things?x=1", A, key="k")).status_code == 422
    spaced = b'{"name": "a" }'
    assert (await plane.ask("POST", "/v1/things", spaced, key="k")).status_code == 422
    assert_replayed(first, await create(plane))
    one, other = first.json()["thing"]["id"], (await create(plane, "b", "b")).json()
    part = await plane.ask("POST", f"/v1/things/{one}/parts", key="k")
    assert part.status_code == 201
    moved = await plane.ask("POST", f"/v1/things/{other['thing']['id']}/parts", key="k")
    assert (moved.status_code, code(moved)) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert count_rows(sqlite_database, "things") == 2
    assert count_rows(sqlite_database, "parts") == 1


@on_both_databases
async def test_a_key_is_its_principals_own(plane: World) -> None:
    plane.tokens.add("colleague")
    mine = await create(plane)
    theirs = await create(plane, token="stranger")
    assert theirs.status_code == 201
    assert theirs.json()["thing"]["id"] != mine.json()["thing"]["id"]
    assert code(await create(plane, token="colleague")) == "CONFLICT"


async def test_permission_is_checked_before_a_replay(plane: World) -> None:
    """Also where the action as such is still allowed."""
    first = await create(plane)
    for statements in [(), (ALLOW, DENY_CREATE)]:
        plane.tokens.restrict("writer", *statements)
        refused = await create(plane)
        assert (refused.status_code, code(refused)) == (403, "ACCESS_DENIED")
        assert "idempotency-replayed" not in refused.headers
    plane.tokens.restrict("writer", ALLOW)
    assert_replayed(first, await create(plane))
    unknown = await plane.ask("POST", "/v1/things", A, key="k", token="nobody")
    assert unknown.status_code == 401


async def test_a_replay_needs_nothing_that_is_gone(plane: World) -> None:
    """The thing that a part was made for is deleted; the retry still learns of the part."""
    thing = (await create(plane)).json()["thing"]["id"]
    first = await plane.ask("POST", f"/v1/things/{thing}/parts", key="p")
    assert (await plane.ask("DELETE", f"/v1/things/{thing}")).status_code == 204
    assert_replayed(first, await plane.ask("POST", f"/v1/things/{thing}/parts", key="p"))


async def test_a_key_is_honoured_for_a_day(plane: World, database_url: str) -> None:
    first = await create(plane)
    plane.pass_time(KEPT_SECONDS - 1)
    assert_replayed(first, await create(plane))
    plane.pass_time(1)
    assert code(await create(plane)) == "CONFLICT"  # run anew, against the thing it made
    assert (await create(plane, "b", "k2")).status_code == 201
    plane.pass_time(KEPT_SECONDS)
    forgotten = await plane.database.write(forget_expired, plane.now)
    assert forgotten == 2
    assert await plane.database.write(forget_expired, plane.now) == 0
    assert count_rows(database_url, "idempotency_records") == 0


async def test_a_malformed_key_is_refused_and_changes_nothing(
    plane: World, sqlite_database: str
) -> None:
    for keys in (("",), ("k" * 256,), ("\xe9",), ("k", "k")):
        headers = [("Idempotency-Key", key) for key in keys]
        refused = await plane.ask("POST", "/v1/things", A, headers=headers)
        assert (refused.status_code, code(refused)) == (400, "INVALID_INPUT"), keys
        assert refused.json()["error"]["params"]["field"] == "Idempotency-Key"
    assert count_rows(sqlite_database, "things") == 0
    assert count_rows(sqlite_database, "idempotency_records") == 0
    # The longest is none of them, and a quoted one is another.
    assert (await create(plane, key="k" * 255)).status_code == 201
    assert (await create(plane, "b", '"k"')).status_code == 201
    assert (await create(plane, "c", "k")).status_code == 201


async def test_what_has_or_takes_no_key_is_a_request_of_its_own(
    plane: World, sqlite_database: str
) -> None:
    path = f"/v1/things/{(await create(plane, key=None)).json()['thing']['id']}"
    assert code(await create(plane, key=None)) == "CONFLICT"
    for description in ("x", "y"):
        changed = await plane.ask("PATCH", path, {"description": description}, key="k")
        assert changed.json()["thing"]["description"] == description
    assert count_rows(sqlite_database, "idempotency_records") == 0


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


@pytest.mark.parametrize("took_effect", [True, False])
async def test_a_commit_of_unknown_outcome_can_be_retried(
    sqlite_database: str, took_effect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 at first; a retry with the same key then has one effect in all."""
    monkeypatch.setattr(Uncertain, "took_effect", took_effect)
    async with open_world(sqlite_database, Options(wrap=Uncertain)) as world:
        lost = await create(world)
        assert (lost.status_code, code(lost)) == (503, "SERVICE_UNAVAILABLE")
        assert int(lost.headers["retry-after"]) > 0
        again = await create(world)
        assert again.status_code == 201
        assert ("idempotency-replayed" in again.headers) == took_effect
    assert count_rows(sqlite_database, "things") == 1
