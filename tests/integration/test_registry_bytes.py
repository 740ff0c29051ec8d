"""How many bytes of blobs an account may have: what is refused, when, and what is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final, cast

import psycopg
import pytest
from sqlalchemy import bindparam

from cloudcore.clock import uuid7
from cloudcore.db.statement import Statement
from cloudcore.quotas.limits import EVERY_ACCOUNT, put_limit, remove_limit
from cloudcore.serving.asgi import Receive, Scope, Send
from registry.distribution.app import DataPlane
from registry.gc.fsck import check, recount_bytes
from registry.gc.purge import discard_expired_uploads
from registry.metadata import quotas
from registry.metadata.repositories.repository import add_account
from registry.metadata.tables import stored_bytes as table
from registry.oci.digest import digest_of
from registry.settings.groups import Limits
from tests.collecting import collect
from tests.databases import on_both_databases
from tests.inprocess import Answer, Client, Registry, hang_up, open_registry
from tests.memory_store import MemoryStore
from tests.recount import check_counters, querying

KIB: Final = 1024
DAY: Final = 24 * 3600
FEW: Final = bytes(range(256)) * 4
"""Kept in rows; what is more than `SMALL` is staged in the store."""
SMALL: Final = 4 * KIB
LIMITS: Final = Limits(inline_max_bytes=SMALL)
_CORRUPT: Final = Statement(table.update().values(bytes=bindparam("wrong")))


def blob(number: int, size: int) -> bytes:
    return number.to_bytes(8, "big") * (size // 8)


also_sealed = pytest.mark.parametrize(
    "registry", [False, True], indirect=True, ids=["plain", "sealed"]
)
of_rows_and_of_the_store = pytest.mark.parametrize("size", [KIB, 64 * KIB])


@pytest.fixture
async def registry(metadata_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Registry]:
    """Return a registry that keeps small blobs in rows, and seals them if it is told so."""
    sealed = bool(getattr(request, "param", False))
    async with open_registry(metadata_url, MemoryStore(), limits=LIMITS, seals=sealed) as registry:
        yield registry
        with querying(metadata_url) as query:
            check_counters(query, "dev")


async def allow(registry: Registry, most: int | None) -> None:
    account_id, write = await registry.account_id(), registry.ctx.database.write
    if most is None:
        await write(remove_limit, account_id, "registry_bytes")
    else:
        await write(put_limit, account_id, "registry_bytes", most, 1)


async def used(registry: Registry) -> int:
    account_id = await registry.account_id()
    use = await registry.ctx.database.read(
        quotas.COUNTED_BYTES.read, account_id, region="local", now=1
    )
    return use.used


async def push(registry: Registry, data: bytes, name: str = "app") -> Answer:
    path = f"/v2/dev/{name}/blobs/uploads/?digest={digest_of(data)}"
    return await registry.client.request("POST", path, data)


async def no_stray_bytes(registry: Registry) -> None:
    """Check that the store has no bytes but those of blobs."""
    database, store = registry.ctx.database, registry.ctx.reader
    assert isinstance(store, MemoryStore)
    registry.clock.advance(DAY)
    report = await check(database, store, lambda _: None, clock=registry.clock)
    assert (report.violations, report.orphans) == ([], [])


async def begin(registry: Registry, name: str = "app") -> str:
    answer = await registry.client.request("POST", f"/v2/dev/{name}/blobs/uploads/")
    assert answer.status == 202
    return answer.headers["location"]


async def declare(registry: Registry, method: str, path: str, size: int) -> Answer:
    """Send a body of a declared length; a large one must not be read."""

    async def untouched() -> AsyncIterator[bytes]:
        if size > SMALL:
            pytest.fail("the body was read")
        yield blob(3, size)

    return await registry.client.request(method, path, untouched(), {"content-length": str(size)})


def refused(answer: Answer, limit: int, used: int) -> None:
    """Check that an answer says what is reached, for programs and for people."""
    assert (answer.status, answer.codes) == (403, ["DENIED"]), answer.body
    (error,) = answer.json()["errors"]
    assert error["detail"] == {"quota": "registry_bytes", "limit": limit, "used": used}
    assert f"may store {limit} bytes" in error["message"]
    assert f"has {used}" in error["message"]


@also_sealed
@of_rows_and_of_the_store
async def test_a_push_that_does_not_fit_is_refused_at_its_post(
    registry: Registry, size: int
) -> None:
    await allow(registry, 2 * size)
    assert (await push(registry, blob(1, size))).status == 201
    assert (await push(registry, blob(2, size))).status == 201

    path = f"/v2/dev/app/blobs/uploads/?digest={digest_of(blob(3, size))}"
    refused(await declare(registry, "POST", path, size), 2 * size, 2 * size)
    assert (await push(registry, b"")).status == 201  # nothing always fits
    assert await used(registry) == 2 * size


@also_sealed
@of_rows_and_of_the_store
async def test_a_push_is_refused_at_the_patch_that_goes_over(registry: Registry, size: int) -> None:
    await allow(registry, 5 * size)
    assert (await push(registry, blob(1, size))).status == 201
    ask = registry.client.request
    location = await begin(registry)
    data = blob(2, 2 * size)
    assert (await ask("PATCH", location, data)).status == 202
    refused(await declare(registry, "PATCH", location, 3 * size), 5 * size, size)
    refused(await ask("PATCH", location, [blob(3, size)] * 3), 5 * size, size)
    # What was acknowledged is there, and goes on.
    assert (await ask("GET", location)).headers["range"] == f"0-{2 * size - 1}"
    more = blob(4, 2 * size)
    assert (await ask("PATCH", location, more)).status == 202
    done = await ask("PUT", f"{location}?digest={digest_of(data + more)}")
    assert done.status == 201
    assert await used(registry) == 5 * size
    for body in (b"x", [b"x"]):
        refused(await ask("PATCH", await begin(registry), body), 5 * size, 5 * size)


@also_sealed
@of_rows_and_of_the_store
async def test_a_push_is_refused_at_its_commit_never_after(registry: Registry, size: int) -> None:
    await allow(registry, 3 * size)
    ask = registry.client.request
    blobs = [blob(number, 2 * size) for number in range(2)]
    locations = [await begin(registry) for _ in blobs]
    for location, data in zip(locations, blobs, strict=True):
        assert (await ask("PATCH", location, data)).status == 202
    ends = [f"{at}?digest={digest_of(data)}" for at, data in zip(locations, blobs, strict=True)]
    assert (await ask("PUT", ends[0])).status == 201
    refused(await ask("PUT", ends[1]), 3 * size, 2 * size)
    # The limit falls below what there is: nothing goes away. It rises: the session goes on.
    await allow(registry, 0)
    assert (await ask("GET", f"/v2/dev/app/blobs/{digest_of(blobs[0])}")).body == blobs[0]
    refused(await ask("PUT", ends[1]), 0, 2 * size)
    await allow(registry, 4 * size)
    assert (await ask("PUT", ends[1])).status == 201
    assert await used(registry) == 4 * size


@also_sealed
@of_rows_and_of_the_store
async def test_what_the_account_has_counts_nothing_again(registry: Registry, size: int) -> None:
    data = blob(1, size)
    assert (await push(registry, data)).status == 201
    await allow(registry, size)
    mount = f"?mount={digest_of(data)}&from=dev/app"
    ask = registry.client.request
    assert (await ask("POST", f"/v2/dev/b/blobs/uploads/{mount}")).status == 201
    assert (await push(registry, data, "c")).status == 201
    location = await begin(registry, "d")
    assert (await ask("PUT", f"{location}?digest={digest_of(data)}", data)).status == 201
    assert await used(registry) == size
    refused(await push(registry, blob(2, size)), size, size)


@on_both_databases
@also_sealed
async def test_sixteen_racing_pushes_never_exceed_the_limit(registry: Registry) -> None:
    size = 16 * KIB
    for few in (KIB, size):
        before = await used(registry)
        most = before + 5 * few + few // 2
        await allow(registry, most)
        blobs = [blob(100 + few + number, few) for number in range(16)]
        answers = await asyncio.gather(
            *(push(registry, data, f"r{number}") for number, data in enumerate(blobs))
        )
        stored = [answer for answer in answers if answer.status == 201]
        assert len(stored) == 5
        for answer in answers:
            if answer.status != 201:
                assert (answer.status, answer.codes) == (403, ["DENIED"])
                assert answer.json()["errors"][0]["detail"]["limit"] == most
        assert await used(registry) == before + 5 * few
        await no_stray_bytes(registry)
        # Nothing has leaked: a blob that fits is taken.
        assert (await push(registry, blob(99, few // 2))).status == 201


@on_both_databases
@also_sealed
async def test_sixteen_pushes_of_the_same_bytes_count_once(registry: Registry) -> None:
    for number, size in enumerate((KIB, 16 * KIB)):
        before = await used(registry)
        await allow(registry, before + size)
        data = blob(7 + number, size)
        answers = await asyncio.gather(*(push(registry, data, f"r{n}") for n in range(16)))
        assert {answer.status for answer in answers} == {201}
        assert await used(registry) == before + size


@also_sealed
async def test_an_upload_that_does_not_end_well_holds_nothing(registry: Registry) -> None:
    size = 64 * KIB
    await allow(registry, size)
    ask = registry.client.request
    for end in ("cancelled", "left", "wrong", "expired"):
        location = await begin(registry)
        if end == "left":
            answer = await ask("PATCH", location, hang_up(blob(1, size)))
            assert answer.status == 400
        else:
            assert (await ask("PATCH", location, blob(1, size))).status == 202
        if end == "cancelled":
            assert (await ask("DELETE", location)).status == 204
        elif end == "wrong":
            wrong = await ask("PUT", f"{location}?digest={digest_of(b'other')}")
            assert wrong.codes == ["DIGEST_INVALID"]
        elif end == "expired":
            registry.clock.advance(LIMITS.upload_idle_seconds + 1)
            await discard_expired_uploads(registry.ctx)
        assert await used(registry) == 0
    assert (await push(registry, blob(2, size))).status == 201


@on_both_databases
@also_sealed
async def test_what_the_collector_removes_is_given_back(registry: Registry) -> None:
    size = 64 * KIB
    await allow(registry, size)
    data = blob(1, size)
    assert (await push(registry, data)).status == 201
    refused(await push(registry, blob(2, size)), size, size)
    path = f"/v2/dev/app/blobs/{digest_of(data)}"
    assert (await registry.client.request("DELETE", path)).status == 202
    # Deleted, it is there until it is collected: a push of it would take it up again.
    refused(await push(registry, blob(2, size)), size, size)
    registry.clock.advance(3600)
    assert isinstance(registry.ctx.reader, MemoryStore)
    await collect(registry.ctx, registry.ctx.reader, await registry.account_id())
    assert await used(registry) == 0
    assert (await push(registry, blob(2, size))).status == 201


async def test_the_limit_of_all_accounts_holds_for_each_alone(registry: Registry) -> None:
    size = 8 * KIB
    write = registry.ctx.database.write
    await write(put_limit, EVERY_ACCOUNT, "registry_bytes", size, 1)
    await write(add_account, uuid7(), "other", registry.clock())
    assert (await push(registry, blob(1, size))).status == 201
    refused(await push(registry, blob(2, size)), size, size)
    account_id = await registry.account_id("other")
    use = await registry.ctx.database.read(
        quotas.COUNTED_BYTES.read, account_id, region="local", now=1
    )
    assert use[:2] == (0, size)
    await allow(registry, 2 * size)  # its own
    assert (await push(registry, blob(2, size))).status == 201


@on_both_databases
async def test_an_account_is_counted_only_while_it_has_a_limit(registry: Registry) -> None:
    read, account_id = registry.ctx.database.read, await registry.account_id()

    async def counted() -> bool:
        return await read(quotas.counted_accounts, "", 10) == [account_id]

    assert (await push(registry, blob(1, KIB))).status == 201
    assert not await counted()
    await allow(registry, 1 << 40)
    assert (await push(registry, blob(2, 8 * KIB))).status == 201
    assert await counted()
    assert await used(registry) == 9 * KIB
    await allow(registry, None)
    assert (await push(registry, blob(3, KIB))).status == 201
    assert not await counted()
    assert await used(registry) == 10 * KIB


@on_both_databases
async def test_a_wrong_number_is_found_and_mended(registry: Registry) -> None:
    await allow(registry, 1 << 40)
    assert (await push(registry, blob(1, 8 * KIB))).status == 201
    database, store = registry.ctx.database, registry.ctx.reader
    assert isinstance(store, MemoryStore)
    assert await recount_bytes(registry.ctx) == 0
    await database.write(lambda tx: tx.execute(_CORRUPT, wrong=5))

    async def findings() -> list[Any]:
        report = await check(database, store, lambda _: None, clock=registry.clock)
        return [each for each in report.violations if each.invariant == "I8"]

    (found,) = await findings()
    assert found.problem == f"5 on record, {8 * KIB} counted"
    assert await recount_bytes(registry.ctx) == 1
    assert await findings() == []


async def test_most_and_all_of_the_bytes_are_told_once(
    registry: Registry, metadata_url: str
) -> None:
    await allow(registry, 10 * KIB)
    for number in range(7):
        assert (await push(registry, blob(number, KIB))).status == 201
    with querying(metadata_url) as query:
        told = "SELECT type FROM outbox WHERE type LIKE ? ORDER BY sequence", "quotas%"
        assert query(*told) == []
        assert (await push(registry, blob(7, KIB))).status == 201
        assert [row[0] for row in query(*told)] == ["quotas.quota.nearly_reached"]
        assert (await push(registry, blob(8, 2 * KIB))).status == 201
        refused(await push(registry, blob(9, KIB)), 10 * KIB, 10 * KIB)
        kinds = ["quotas.quota.nearly_reached", "quotas.quota.reached"]
        assert [row[0] for row in query(*told)] == kinds


async def test_refused_pushes_are_counted_by_their_quota(registry: Registry) -> None:
    await allow(registry, 0)
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await registry.app(scope, receive, send)

    path = f"/v2/dev/app/blobs/uploads/?digest={digest_of(FEW)}"
    answer = await Client(cast("DataPlane", app)).request("POST", path, FEW)
    refused(answer, 0, 0)
    (scope,) = scopes
    assert scope["state"]["event"] == "quota.registry_bytes"


@pytest.mark.postgresql
async def test_counting_waits_for_pushes_that_have_found_no_limit(
    registry: Registry, postgresql_database: str
) -> None:
    """Their blobs are in the number, though they do not count them."""
    first, second = blob(1, KIB), blob(2, KIB)
    assert (await push(registry, first)).status == 201
    account_id, write = await registry.account_id(), registry.ctx.database.write
    copied = (
        "INSERT INTO blob_objects SELECT (json_populate_record(o, %s::json)).* FROM blob_objects o"
    )
    other = str(digest_of(second))
    changed = json.dumps({"id": uuid7(), "stored_id": uuid7(), "digest": other, "size": 5})
    with psycopg.connect(postgresql_database) as beside:
        beside.execute(copied, [changed])
        await allow(registry, 1 << 40)
        counting = asyncio.create_task(write(quotas.begin_counting, account_id))
        with querying(postgresql_database) as query:
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while not query(waiting)[0][0]:
                assert not counting.done()
                await asyncio.sleep(0)
        beside.commit()
        await counting
    assert await used(registry) == KIB + 5
    with querying(postgresql_database) as query:
        check_counters(query, "dev")
