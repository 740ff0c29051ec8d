"""A registry whose disk is full: pulls go on, and so does the collector that makes room.

What is uploaded leaves some room; so it is another program that takes the last byte.
"""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import bindparam, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from cloudcore.identity.tables import accounts
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.staged_file import StagedFile
from registry.blobstore.disk.store import FilesystemStore
from registry.errors import StoreUnavailable
from registry.gc.fsck import check
from registry.oci.digest import digest_of
from tests.collecting import at_once, collect
from tests.databases import add_account, opened
from tests.fault.collected import DELETED, KEPT, check_image, document, push_image
from tests.fault.small_disk import free_bytes, small_disk, take_the_rest
from tests.fault.uploads import read
from tests.inprocess import Answer, Registry, open_registry
from tests.integration.mirror_world import TTL, open_cached

DISK_BYTES: Final = 32 << 20
BLOB_BYTES: Final = 1 << 20
CHANGES: Final = 4000
"""With a page of the log each, twice what the disk holds."""
PULLS: Final = 20

_COUNT_ON: Final = Statement(
    accounts.update()
    .where(accounts.c.id == bindparam("account_id"))
    .values({"created_at": accounts.c.created_at + text("1")})
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return an empty small disk."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


@pytest.fixture
def database_on_disk(disk: Path, migrated_file: Path) -> str:
    """Return the URL of a SQLite database beside the blobs."""
    shutil.copy(migrated_file, disk / "metadata.db")
    return f"sqlite:///{disk}/metadata.db"


@asynccontextmanager
async def open_full(url: str, disk: Path) -> AsyncIterator[tuple[Registry, FilesystemStore]]:
    """Open a registry on a disk full of blobs that nobody needs; check it at the end."""
    with closing(FilesystemStore(disk / "blobs")) as store:
        async with open_registry(url, store) as registry:
            await push_image(registry, KEPT)
            await push_image(registry, DELETED)
            rng = random.Random(0)
            for size in (BLOB_BYTES, BLOB_BYTES // 64):
                while (answer := await push(registry, rng.randbytes(size))).status == 201:
                    pass
                check_refused(answer, "the blob store is full")
            yield registry, store
            await check_image(registry, KEPT)
            report = await check(registry.ctx.database, store, lambda _: None, clock=registry.clock)
            assert report.violations == []
            assert report.orphans == []


async def push(registry: Registry, data: bytes) -> Answer:
    """Push a blob."""
    path = f"/v2/dev/app/blobs/uploads/?digest={digest_of(data)}"
    return await registry.client.request("POST", path, data)


async def delete(registry: Registry) -> Answer:
    """Delete the image that need not stay."""
    path = f"/v2/dev/app/manifests/{digest_of(document(DELETED))}"
    return await registry.client.request("DELETE", path)


def check_refused(answer: Answer, message: str) -> None:
    """Check that a client is told why, and when to come back."""
    assert answer.status == 503
    assert message in answer.json()["errors"][0]["message"]
    assert answer.headers["retry-after"]


async def check_emptied(registry: Registry, store: FilesystemStore, disk: Path) -> None:
    """Delete, collect, and push into the room this makes."""
    before = free_bytes(disk)
    assert (await delete(registry)).status == 202
    run = await collect(at_once(registry.ctx), store, await registry.account_id())
    assert run.counts["removed"] > DISK_BYTES // BLOB_BYTES // 2
    assert free_bytes(disk) - before > DISK_BYTES // 2
    assert (await push(registry, bytes(BLOB_BYTES))).status == 201


async def test_what_pushes_filled_is_emptied(disk: Path, database_on_disk: str) -> None:
    async with open_full(database_on_disk, disk) as (registry, store):
        await check_emptied(registry, store, disk)


async def test_at_the_last_byte_pulls_go_on_and_room_heals(
    disk: Path, database_on_disk: str
) -> None:
    """The database cannot grow there; nothing is lost, and no restart is needed."""

    async with open_full(database_on_disk, disk) as (registry, store):
        taken = take_the_rest(disk)
        check_refused(await push(registry, b"small"), "full")
        check_refused(await delete(registry), "full")
        await check_image(registry, KEPT)
        await check_image(registry, DELETED)
        taken.unlink()
        await check_emptied(registry, store, disk)


@pytest.mark.postgresql
async def test_the_collector_needs_not_one_byte(disk: Path, postgresql_database: str) -> None:
    async with open_full(postgresql_database, disk) as (registry, store):
        take_the_rest(disk)
        check_refused(await push(registry, b"small"), "full")
        await check_emptied(registry, store, disk)


async def test_a_log_that_cannot_grow_is_used_again(disk: Path, database_on_disk: str) -> None:
    """What changes rows in place goes on at the last byte, but for who finds the log's end."""

    async with opened(database_on_disk) as database:
        account_id = await database.write(add_account, "full")
        for _ in range(100):
            await database.write(_count_on, account_id)
        take_the_rest(disk)
        refused = 0
        for _ in range(CHANGES):
            try:
                await database.write(_count_on, account_id)
            except Unavailable:
                refused += 1
        assert 0 < refused < CHANGES // 10


def _count_on(tx: Connection, account_id: str) -> None:
    tx.execute(_COUNT_ON, account_id=account_id)


async def test_a_cached_tag_is_pulled_from_a_full_disk_when_its_time_is_over(
    disk: Path, database_on_disk: str
) -> None:
    """What an upstream tells cannot be kept there; what is cached is served, and the rest told."""
    async with open_cached(database_on_disk) as cached:
        subject = cached.upstream.add_image("team/app", "v1", layers=(b"layer",))
        body = (await cached.pull("v1")).body
        taken = take_the_rest(disk)
        for _ in range(PULLS):
            cached.clock.advance(TTL)
            answer = await cached.pull("v1")
            assert (answer.status, answer.body) == (200, body)
            told = await cached.ask("GET", f"referrers/{subject}")
            assert (told.status, told.json()["manifests"]) == (200, [])
        taken.unlink()
        await cached.check()


SMALL_DISK_BYTES: Final = 4 * 1024 * 1024
UNIT: Final = 256 * 1024
RESERVE: Final = SMALL_DISK_BYTES // 16


def write_all(staged: StagedFile, view: memoryview) -> None:
    for offset in range(0, len(view), UNIT):
        staged.write(view[offset : offset + UNIT])


def test_a_full_disk_refuses_writers_alone_and_heals(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", SMALL_DISK_BYTES) as disk:
        fill_and_heal(disk)


def fill_and_heal(disk: Path) -> None:
    rng = random.Random(3)
    small, large = rng.randbytes(700_000), rng.randbytes(SMALL_DISK_BYTES)
    view = memoryview(large)
    small_id, large_id, third_id = (str(uuid.uuid4()) for _ in range(3))
    with closing(DiskFiles(disk)) as store:
        with closing(store.stage(small_id)) as staged:
            staged.write(memoryview(small))
            staged.commit(digest_of(small))
        with closing(store.stage(large_id)) as staged:
            with pytest.raises(StoreUnavailable, match="full"):
                write_all(staged, view)
            assert 2 * UNIT < staged.offset < len(large) - len(small)
            with pytest.raises(StoreUnavailable, match="full"):
                staged.write(view[staged.offset :])
            digests = staged.flush()
            received = staged.offset
        assert free_bytes(disk) < RESERVE + UNIT
        take_the_rest(disk)
        assert digests["sha256"] == digest_of(large[:received])[len("sha256:") :]
        assert read(store, small_id) == small
        with pytest.raises(StoreUnavailable, match="full"), closing(store.stage(third_id)) as other:
            other.write(view[:UNIT])
        store.discard(third_id)
        store.delete(small_id)
        with closing(store.resume(large_id)) as staged:
            staged.rewind(received, digests)
            staged.write(view[received : received + 400_000])
            staged.commit(digest_of(large[: received + 400_000]))
        assert read(store, large_id) == large[: received + 400_000]
