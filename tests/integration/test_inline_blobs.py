"""Small blobs live in the database: pushed, pulled, deduplicated, damaged, healed and collected."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest
from sqlalchemy import bindparam, select, text

from cloudcore.db.statement import Statement
from registry.errors import BlobUnknown, DigestMismatch
from registry.gc.fsck import FsckReport, check
from registry.gc.object_check import Pace
from registry.gc.recovery import recover_blob
from registry.gc.scrub import ScrubReport, ScrubScope, scrub_all
from registry.metadata.blobs import inline
from registry.metadata.repositories.repository import find_repository
from registry.metadata.tables import blob_objects, inline_bytes
from registry.oci.digest import digest_of
from registry.services.blobs.recording import VERIFIED_FOR
from registry.settings.groups import Delays, Limits
from tests.collecting import at_once, collect
from tests.databases import on_both_databases
from tests.inprocess import Answer, Registry, hang_up, open_registry
from tests.integration.damaged import marked
from tests.memory_store import MemoryStore

LIMIT: Final = 4096
SMALL: Final = os.urandom(LIMIT)
DIGEST: Final = digest_of(SMALL)
_OBJECTS: Final = Statement(
    select(blob_objects.c.digest, blob_objects.c.stored_id, blob_objects.c.is_inline)
)
_BODIES: Final = Statement(select(inline_bytes.c.stored_id, inline_bytes.c.body))

_CHANGE: Final = Statement(inline_bytes.update().values(body=bindparam("changed")))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def registry(metadata_url: str, store: MemoryStore) -> AsyncIterator[Registry]:
    async with open_registry(metadata_url, store, limits=Limits(inline_max_bytes=LIMIT)) as opened:
        yield opened


async def push(registry: Registry, data: bytes = SMALL, repository: str = "app") -> Answer:
    """Push in one POST."""
    path = f"/v2/dev/{repository}/blobs/uploads/?digest={digest_of(data)}"
    return await registry.client.request("POST", path, data, {"content-length": str(len(data))})


async def push_in_session(registry: Registry, data: bytes, *parts: bytes) -> Answer:
    """Push by POST, a PATCH for each of `parts`, and PUT with `data`."""
    session = await registry.client.request("POST", "/v2/dev/app/blobs/uploads/")
    location = session.headers["location"]
    for part in parts:
        assert (await registry.client.request("PATCH", location, part)).status == 202
    whole = digest_of(b"".join((*parts, data)))
    return await registry.client.request("PUT", f"{location}?digest={whole}", data)


async def pull(
    registry: Registry, digest: str = DIGEST, method: str = "GET", **headers: str
) -> Answer:
    path = f"/v2/dev/app/blobs/{digest}"
    return await registry.client.request(method, path, b"", headers)


async def rows(registry: Registry, statement: Statement) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await registry.ctx.database.read(lambda tx: tx.rows(statement))]


async def bodies(registry: Registry) -> dict[str, bytes]:
    return {row[0]: bytes(row[1]) for row in await rows(registry, _BODIES)}


async def run(registry: Registry, sql: str) -> None:
    await registry.ctx.database.write(lambda tx: tx.execute(Statement(text(sql))))


async def flip(registry: Registry) -> None:
    """Change one bit of the only body."""
    ((_, body),) = (await bodies(registry)).items()
    changed = body[:9] + bytes([body[9] ^ 1]) + body[10:]
    await registry.ctx.database.write(lambda tx: tx.execute(_CHANGE, changed=changed))


async def fsck(registry: Registry, store: MemoryStore) -> FsckReport:
    return await check(registry.ctx.database, store, lambda _: None, clock=registry.clock)


async def scrub(registry: Registry, store: MemoryStore) -> ScrubReport:
    ctx = registry.ctx
    return await scrub_all(ctx.database, store, ctx.clock, ScrubScope(), Pace(), lambda _: None)


@on_both_databases
async def test_a_small_blob_is_pushed_into_a_row_and_a_larger_one_is_not(
    registry: Registry, store: MemoryStore
) -> None:
    blobs = {digest_of(SMALL[:size]): SMALL[:size] for size in (0, 1, LIMIT)}
    for digest, data in blobs.items():
        assert (await push(registry, data)).status == 201
        answer = await pull(registry, digest)
        assert (answer.status, answer.body) == (200, data)
    assert (store.files.objects, store.files.staged) == ({}, {})
    found = await rows(registry, _OBJECTS)
    assert {digest: bool(is_inline) for digest, _, is_inline in found} == dict.fromkeys(blobs, True)
    stored = {stored_id: blobs[digest] for digest, stored_id, _ in found}
    assert await bodies(registry) == stored
    assert (await fsck(registry, store)).violations == []
    assert (await push(registry, bytes(LIMIT + 1))).status == 201
    assert await bodies(registry) == stored
    assert len(store.files.objects) == 1


async def test_without_a_limit_no_blob_is(metadata_url: str, store: MemoryStore) -> None:
    limits = Limits(inline_max_bytes=0)
    async with open_registry(metadata_url, store, limits=limits) as registry:
        for data in (b"", b"1"):
            assert (await push(registry, data)).status == 201
        assert await bodies(registry) == {}
        assert len(store.files.objects) == 2


@on_both_databases
async def test_equal_bytes_are_kept_once(registry: Registry, store: MemoryStore) -> None:
    """Also those of a session whose last request has the whole blob."""
    assert (await push_in_session(registry, SMALL)).status == 201
    assert (store.files.objects, store.files.staged) == ({}, {})
    for repository in ("app", "app", "other"):
        assert (await push(registry, repository=repository)).status == 201
    mounted = await registry.client.request(
        "POST", f"/v2/dev/third/blobs/uploads/?mount={DIGEST}&from=dev/app"
    )
    assert mounted.status == 201
    assert list((await bodies(registry)).values()) == [SMALL]
    assert len(await rows(registry, _OBJECTS)) == 1
    assert (await pull(registry)).body == SMALL
    assert (await fsck(registry, store)).violations == []


async def test_bytes_in_the_store_stay_there(metadata_url: str, store: MemoryStore) -> None:
    async with open_registry(metadata_url, store, limits=Limits(inline_max_bytes=0)) as registry:
        await push(registry)
        limits = Limits(inline_max_bytes=LIMIT)
        later = replace(registry, ctx=replace(registry.ctx, limits=limits))
        assert (await push(later, repository="other")).status == 201
        assert await bodies(registry) == {}
        assert (await pull(registry)).body == SMALL


LOST: Final = "DELETE FROM inline_bytes"
CUT: Final = "UPDATE inline_bytes SET body = substr(body, 1, 9)"
DAMAGES: Final = {"absent": LOST, "size": CUT}


@pytest.fixture(params=list(DAMAGES))
def damage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_damage_is_marked_when_it_is_met_and_a_push_heals_it(
    registry: Registry, store: MemoryStore, damage: str
) -> None:
    for method in ("GET", "HEAD"):
        assert (await push(registry)).status == 201
        await run(registry, DAMAGES[damage])
        assert (await pull(registry, method=method)).status == 404
        assert await marked(registry) == [(DIGEST, damage)]
        answer = await pull(registry)
        assert (answer.status, answer.codes) == (404, ["BLOB_UNKNOWN"])
        assert b"push them again" in answer.body
    for repository in ("app", "app", "other"):  # what was met, and twice what was not
        assert (await push(registry, repository=repository)).status == 201
        assert (await pull(registry)).body == SMALL
        assert await marked(registry) == []
        assert (await fsck(registry, store)).violations == []
        await run(registry, DAMAGES[damage])


async def test_a_damaged_blob_is_no_source_of_a_mount(registry: Registry, damage: str) -> None:
    await push(registry)
    await run(registry, DAMAGES[damage])
    path = f"/v2/dev/other/blobs/uploads/?mount={DIGEST}&from=dev/app"
    assert (await registry.client.request("POST", path)).status == 202


async def test_bytes_that_were_not_verified_for_long_are_replaced(
    registry: Registry, store: MemoryStore
) -> None:
    await push(registry)
    (old,) = await bodies(registry)
    registry.clock.advance(VERIFIED_FOR / 1_000_000 + 1)
    assert (await push(registry)).status == 201
    assert len(await bodies(registry)) == 2
    ((_, stored_id, _),) = await rows(registry, _OBJECTS)
    assert stored_id != old
    assert (await fsck(registry, store)).violations == []
    await remove_quarantined(registry, store)
    assert list(await bodies(registry)) == [stored_id]


async def test_a_push_moves_bytes_that_are_damaged_in_the_store_to_a_row(
    metadata_url: str, store: MemoryStore
) -> None:
    async with open_registry(metadata_url, store, limits=Limits(inline_max_bytes=0)) as registry:
        await push(registry)
        (old,) = store.files.objects
        store.files.objects[old] = b"short"
        limits = Limits(inline_max_bytes=LIMIT)
        app = type(registry.app)(replace(registry.ctx, limits=limits), registry.app._access)
        later = replace(registry, client=type(registry.client)(app))
        assert (await push(later)).status == 201
        assert list((await bodies(registry)).values()) == [SMALL]
        assert (await pull(registry)).body == SMALL
        await collect(at_once(registry.ctx), store, await registry.account_id())
        assert store.files.objects == {}


async def test_the_scrub_finds_changed_bytes_and_a_push_heals_them(
    registry: Registry, store: MemoryStore
) -> None:
    await push(registry)
    await flip(registry)
    (found,) = (await scrub(registry, store)).blobs
    assert (found.digest, found.is_new) == (DIGEST, True)
    assert await marked(registry) == [(DIGEST, "digest")]
    assert (await pull(registry)).status == 404
    assert (await push(registry)).status == 201
    assert (await pull(registry)).body == SMALL
    report = await scrub(registry, store)
    assert (report.blobs, report.read_bytes) == ([], LIMIT)


async def test_fsck_names_lost_bytes_and_bytes_of_no_blob(
    registry: Registry, store: MemoryStore
) -> None:
    await push(registry)
    await push(registry, b"other")
    await run(registry, "UPDATE inline_bytes SET stored_id = 'x' WHERE length(body) > 5")
    found = [(each.invariant, each.subject) for each in (await fsck(registry, store)).violations]
    assert found == [("I1, I5", f"blob {DIGEST}"), ("I6", "inline bytes x")]


async def unlink(registry: Registry) -> None:
    answer = await registry.client.request("DELETE", f"/v2/dev/app/blobs/{DIGEST}")
    assert answer.status == 202


@on_both_databases
async def test_the_collector_deletes_the_row(registry: Registry, store: MemoryStore) -> None:
    await push(registry)
    await unlink(registry)
    done = await collect(at_once(registry.ctx), store, await registry.account_id())
    assert done.counts["freed_bytes"] == LIMIT
    assert await bodies(registry) == {}
    assert await rows(registry, _OBJECTS) == []


async def remove_quarantined(registry: Registry, store: MemoryStore) -> None:
    ctx = replace(registry.ctx, delays=Delays(gc_quarantine_seconds=0))
    await collect(ctx, store, await registry.account_id())


async def swept(registry: Registry, store: MemoryStore) -> str:
    """Push a blob and sweep it into the quarantine; return the account's id."""
    await push(registry)
    await unlink(registry)
    account = await registry.account_id()
    ctx = at_once(registry.ctx)
    await collect(
        replace(ctx, delays=replace(ctx.delays, gc_quarantine_seconds=60)), store, account
    )
    assert await rows(registry, _OBJECTS) == []
    return account


async def app_id(registry: Registry) -> str:
    found = await registry.ctx.database.read(find_repository, "dev", "app")
    assert found is not None
    return found.id


async def test_a_swept_blob_is_recovered(registry: Registry, store: MemoryStore) -> None:
    account = await swept(registry, store)
    assert len(await bodies(registry)) == 1, "they belong to the quarantined blob"
    assert await registry.ctx.database.read(inline.stray_bodies, 9) == []
    assert (await fsck(registry, store)).violations == []
    await recover_blob(registry.ctx, account, await app_id(registry), DIGEST)
    assert (await pull(registry)).body == SMALL
    assert (await fsck(registry, store)).violations == []


async def test_a_swept_blob_that_was_changed_is_not(registry: Registry, store: MemoryStore) -> None:
    account = await swept(registry, store)
    await flip(registry)
    with pytest.raises(DigestMismatch):
        await recover_blob(registry.ctx, account, await app_id(registry), DIGEST)
    await run(registry, LOST)
    with pytest.raises(BlobUnknown):
        await recover_blob(registry.ctx, account, await app_id(registry), DIGEST)


async def test_a_push_beside_a_swept_blob_has_bytes_of_its_own(
    registry: Registry, store: MemoryStore
) -> None:
    await swept(registry, store)
    assert (await push(registry)).status == 201
    assert len(await bodies(registry)) == 2
    await remove_quarantined(registry, store)
    assert len(await bodies(registry)) == 1
    assert (await pull(registry)).body == SMALL


async def test_a_push_that_is_cut_short_leaves_nothing(
    registry: Registry, store: MemoryStore
) -> None:
    path = f"/v2/dev/app/blobs/uploads/?digest={DIGEST}"
    headers = {"content-length": str(LIMIT)}
    await registry.client.request("POST", path, hang_up(SMALL[:100]), headers)
    assert await rows(registry, _OBJECTS) == []
    assert await bodies(registry) == {}
    assert store.files.staged == {}
