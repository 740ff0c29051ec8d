"""Upload sessions that are an id alone, and those whose bytes are in their row."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import product
from typing import Any, Final

import pytest
from sqlalchemy import text

from cloudcore.clock import uuid7
from cloudcore.db.statement import Statement
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.gc.fsck import check
from registry.gc.purge import discard_expired_uploads, forget_ended_uploads
from registry.metadata.collector.generations import forget_unfinished
from registry.oci.digest import digest_of
from registry.services.blobs.upload_ids import UploadIds
from registry.settings.groups import Limits
from tests.databases import on_both_databases
from tests.inprocess import Answer, Client, Registry, hang_up, open_registry
from tests.integration.counting import open_counting
from tests.memory_store import MemoryStore

LIMIT: Final = 1000
ONE: Final = os.urandom(400)
TWO: Final = os.urandom(500)
MUCH: Final = os.urandom(3 * LIMIT)
UPLOADS: Final = "/v2/dev/app/blobs/uploads/"
UNKNOWN: Final = (404, ["BLOB_UPLOAD_UNKNOWN"])


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
async def registry(
    metadata_url: str, store: MemoryStore, request: pytest.FixtureRequest
) -> AsyncIterator[Registry]:
    limits = Limits(inline_max_bytes=LIMIT)
    async with open_registry(metadata_url, store, limits=limits, seals=request.param) as opened:
        yield opened


async def patch(registry: Registry, location: str, body: bytes) -> None:
    assert (await registry.client.request("PATCH", location, body)).status == 202


def chunked(body: bytes) -> tuple[list[bytes], dict[str, str]]:
    """Return a body in two pieces without a length, and its header."""
    return [body[:100], body[100:]], {"transfer-encoding": "chunked"}


async def post(registry: Registry) -> str:
    answer = await registry.client.request("POST", UPLOADS)
    assert answer.status == 202
    return answer.headers["location"]


async def put(registry: Registry, location: str, whole: bytes, body: bytes = b"") -> Answer:
    return await registry.client.request("PUT", f"{location}?digest={digest_of(whole)}", body)


async def received(registry: Registry, location: str) -> str:
    answer = await registry.client.request("GET", location)
    return answer.headers["range"] if answer.status == 204 else ""


async def rows(registry: Registry, sql: str) -> list[tuple[Any, ...]]:
    statement = Statement(text(sql))
    return [tuple(row) for row in await registry.ctx.database.read(lambda tx: tx.rows(statement))]


async def unknown(registry: Registry, location: str) -> None:
    """Check that a session has ended, whatever is asked."""
    for method, target in (
        ("GET", location),
        ("PATCH", location),
        ("PUT", f"{location}?digest={digest_of(ONE)}"),
        ("DELETE", location),
    ):
        answer = await registry.client.request(method, target, ONE if method[0] == "P" else b"")
        assert (answer.status, answer.codes) == UNKNOWN, method


async def check_whole(registry: Registry, store: MemoryStore, whole: bytes) -> None:
    found = await registry.client.request("GET", f"/v2/dev/app/blobs/{digest_of(whole)}")
    assert found.body == whole
    assert store.files.staged == {}
    report = await check(registry.ctx.database, store, lambda _: None, clock=registry.clock)
    assert report.violations == report.orphans == []


def elsewhere(registry: Registry, ids: UploadIds) -> Registry:
    """Return the registry with another key for ids."""
    ctx = replace(registry.ctx, upload_ids=ids)
    return replace(registry, ctx=ctx, client=Client(DataPlane(ctx, OpenAccess("dev"))))


@on_both_databases
async def test_a_post_writes_nothing_and_any_worker_goes_on(
    registry: Registry, store: MemoryStore
) -> None:
    location = await post(registry)
    assert await rows(registry, "SELECT id FROM uploads") == []
    assert await received(registry, location) == "0-0"
    other = elsewhere(registry, UploadIds(bytes(32)))
    assert (await put(other, location, ONE, ONE)).status == 201
    assert await rows(registry, "SELECT id FROM uploads") == []
    await check_whole(registry, store, ONE)
    await unknown(registry, location)


async def test_ids_that_were_not_given_out_are_unknown(registry: Registry) -> None:
    location = await post(registry)
    assert (await registry.client.request("POST", "/v2/dev/other/blobs/uploads/")).status == 202
    for wrong in (
        UPLOADS + uuid7(registry.clock()),
        location.replace("/app/", "/other/"),
        location.replace("/app/", "/none/"),
        location[:-1] + ("1" if location[-1] == "0" else "0"),
    ):
        await unknown(registry, wrong)
    await unknown(elsewhere(registry, UploadIds(b"another")), location)
    registry.clock.advance(registry.ctx.limits.upload_idle_seconds)
    await unknown(registry, location)


async def test_what_has_ended_stays_so(registry: Registry, store: MemoryStore) -> None:
    bodies: tuple[tuple[bytes, ...], ...] = ((), (ONE,), (ONE, TWO), (MUCH,), (ONE, MUCH))
    for parts, how in product(bodies, ("cancelled", "finished", "mismatched")):
        location, whole = await post(registry), b"".join(parts)
        for part in parts:
            await patch(registry, location, part)
        if how == "cancelled":
            assert (await registry.client.request("DELETE", location)).status == 204
        else:
            answer = await put(registry, location, whole if how == "finished" else b"other")
            assert answer.status == (201 if how == "finished" else 400)
        await unknown(registry, location)
        assert await rows(registry, "SELECT id FROM uploads") == []
        assert store.files.staged == {}
        assert await forget_ended_uploads(registry.ctx) == 0
        registry.clock.advance(registry.ctx.limits.upload_idle_seconds)
        assert await forget_ended_uploads(registry.ctx) == 1


@on_both_databases
async def test_few_bytes_stay_in_the_row(registry: Registry, store: MemoryStore) -> None:
    for last, is_chunked in product((b"", b"the end"), (False, True)):
        two = TWO + b"chunked" * is_chunked  # so that the repository has no such blob yet
        location = await post(registry)
        for part, size in ((b"", 1), (ONE, len(ONE)), (b"", len(ONE)), (two, len(ONE + two))):
            body, headers = chunked(part) if is_chunked else (part, {})
            answer = await registry.client.request("PATCH", location, body, headers)
            assert (answer.status, answer.headers["range"]) == (202, f"0-{size - 1}")
            assert answer.headers["location"] == location
        ((body, key),) = await rows(registry, "SELECT body, kms_key_id FROM uploads")
        assert (bytes(body) == ONE + two) == (key is None)
        assert ONE not in bytes(body) or key is None
        whole = ONE + two + last
        assert (await put(registry, location, whole, last)).status == 201
        assert store.files.objects == {}
        await check_whole(registry, store, whole)


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("method", ["PATCH", "PUT"])
async def test_more_bytes_move_to_a_file(
    registry: Registry, store: MemoryStore, method: str, is_chunked: bool
) -> None:
    location = await post(registry)
    await patch(registry, location, ONE)
    body, headers = chunked(MUCH) if is_chunked else (MUCH, {})
    query = f"?digest={digest_of(ONE + MUCH)}" if method == "PUT" else ""
    answer = await registry.client.request(method, location + query, body, headers)
    assert answer.status == (201 if method == "PUT" else 202)
    if method == "PATCH":
        assert await rows(registry, "SELECT body FROM uploads") == [(None,)]
        assert (await put(registry, location, ONE + MUCH)).status == 201
    assert len(store.files.objects) == 1
    await check_whole(registry, store, ONE + MUCH)


async def test_what_arrived_of_a_body_counts(registry: Registry, store: MemoryStore) -> None:
    for before, method in product((b"", ONE), ("PATCH", "PUT")):
        location = await post(registry)
        if before:
            await patch(registry, location, before)
        whole = before + TWO + method.encode()
        query = f"?digest={digest_of(whole)}" if method == "PUT" else ""
        cut, length = hang_up(TWO[:200], TWO[200:300]), len(whole) - len(before)
        answer = await registry.client.request(
            method, location + query, cut, {"content-length": str(length)}
        )
        assert (answer.status, answer.codes) == (400, ["SIZE_INVALID"])
        assert await received(registry, location) == f"0-{len(before) + 300 - 1}"
        assert (await put(registry, location, whole, whole[len(before) + 300 :])).status == 201
        await check_whole(registry, store, whole)


async def test_a_chunk_begins_where_the_session_is(registry: Registry) -> None:
    location = await post(registry)
    ask = registry.client.request
    for at, status in ((1, 416), (0, 202), (0, 416), (len(ONE) + 1, 416), (len(ONE), 202)):
        place = {"content-range": f"{at}-{at + len(ONE) - 1}"}
        assert (await ask("PATCH", location, ONE, place)).status == status
    wrong = {"content-range": f"{2 * len(ONE)}-{2 * len(ONE) + 8}", "transfer-encoding": "chunked"}
    assert (await ask("PATCH", location, [ONE[:7]], wrong)).status == 400
    assert await received(registry, location) == f"0-{2 * len(ONE) - 1}"


@on_both_databases
async def test_of_two_at_once_one_is_told_to_come_again(
    registry: Registry, store: MemoryStore
) -> None:
    location, ask = await post(registry), registry.client.request
    whole = b""
    for _ in range(3):
        both = await asyncio.gather(*(ask("PATCH", location, data) for data in (ONE[:9], ONE[:9])))
        assert {answer.status for answer in both} <= {202, 409}
        whole += ONE[:9] * sum(answer.status == 202 for answer in both)
        assert await received(registry, location) == f"0-{len(whole) - 1}"
    ends = await asyncio.gather(*(put(registry, location, whole) for _ in range(2)))
    assert sorted(answer.status for answer in ends) == [201, 404]
    await check_whole(registry, store, whole)


async def test_expired_sessions_are_purged_however_many_they_are(registry: Registry) -> None:
    """They are read a hundred at a time; and those of whose id alone the time is over stay."""
    location = await post(registry)
    registry.clock.advance(3600)
    for each in (location, *[await post(registry) for _ in range(100)]):
        await patch(registry, each, ONE)
    registry.clock.advance(registry.ctx.limits.upload_idle_seconds - 3600)
    assert await received(registry, location) == f"0-{len(ONE) - 1}"
    registry.clock.advance(3600)
    assert await discard_expired_uploads(registry.ctx) == 101
    await unknown(registry, location)


async def test_a_session_that_no_backup_has_is_unknown_after_it(registry: Registry) -> None:
    location = await post(registry)
    await patch(registry, location, ONE)
    await registry.ctx.database.write(forget_unfinished)
    await unknown(registry, location)


async def test_fsck_finds_a_row_that_lost_bytes(registry: Registry, store: MemoryStore) -> None:
    location = await post(registry)
    await patch(registry, location, ONE)
    cut = Statement(text("UPDATE uploads SET body = substr(body, 1, 9)"))
    await registry.ctx.database.write(lambda tx: tx.execute(cut))
    report = await check(registry.ctx.database, store, lambda _: None, clock=registry.clock)
    assert [each.invariant for each in report.violations] == ["I2"]
    answer = await registry.client.request("PATCH", location, TWO)
    assert (answer.status, answer.codes) == UNKNOWN
    await unknown(registry, location)


async def test_a_small_push_changes_the_database_once(sqlite_database: str) -> None:
    async with open_counting(sqlite_database) as (opened, counted):
        ctx = replace(opened.ctx, limits=Limits(inline_max_bytes=LIMIT))
        registry = replace(opened, ctx=ctx, client=Client(DataPlane(ctx, OpenAccess("dev"))))
        assert (await put(registry, await post(registry), ONE, ONE)).status == 201
        whole, in_parts = await post(registry), await post(registry)
        other = f"?digest={digest_of(TWO)}"
        for method, target, body, statements, changes, durable in (
            ("POST", UPLOADS, b"", 1, 0, 0),
            ("PUT", f"{whole}?digest={digest_of(ONE[:9])}", ONE[:9], 5, 1, 1),
            ("PATCH", in_parts, TWO, 1, 1, 1),
            ("GET", in_parts, b"", 1, 0, 0),
            ("PUT", in_parts + other, b"", 7, 1, 1),
        ):
            counted.start()
            await registry.client.request(method, target, body)
            found = len(counted.seen), counted.changes, counted.durable
            expected = statements, changes, durable
            assert found == expected, (method, [each.sqlite for each in counted.seen])


async def test_maxima_hold_for_small_bodies_too(metadata_url: str) -> None:
    """Of bytes, also if the body is chunked; and of rows of bodies that are cut."""
    limits = Limits(inline_max_bytes=LIMIT, max_blob_bytes=len(ONE) - 1, max_open_uploads=1)
    target, length = f"?digest={digest_of(ONE)}", {"content-length": str(len(ONE) - 1)}
    async with open_registry(metadata_url, MemoryStore(), limits=limits) as registry:
        ask = registry.client.request
        body, headers = chunked(ONE)
        assert (await ask("POST", UPLOADS + target, body, headers)).status == 413
        assert (await put(registry, await post(registry), ONE[1:], ONE[1:])).status == 201
        whole = {"content-length": str(len(ONE))}
        assert (await ask("PUT", await post(registry) + target, ONE, whole)).status == 413
        for location, status in [(await post(registry), each) for each in (400, 429)]:
            answer = await ask("PUT", location + target, hang_up(ONE[:9]), length)
            assert answer.status == status
        assert await rows(registry, "SELECT count(*) FROM uploads") == [(1,)]
