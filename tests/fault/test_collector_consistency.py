"""Tables lost, cut or brought back from before: the collector takes nothing in use by them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

import pytest

from registry.gc.manifest_check import IndexIncomplete
from registry.oci.digest import digest_of
from tests.fault.collected import (
    CONFIG,
    DELETED,
    KEPT,
    check_image,
    clean,
    document,
    fill,
    push_blob,
    push_image,
)
from tests.inprocess import Registry, open_registry
from tests.memory_store import MemoryStore

NEEDED: Final = {CONFIG, KEPT, DELETED}
NO_REFERENCES: Final = "UPDATE repository_blobs SET manifest_refs = 0"
CONDEMN_ALL: Final = "UPDATE blob_objects SET state = 'condemned', condemned_at = 0"


@asynccontextmanager
async def open_later(url: str, store: MemoryStore, *, hours: int = 0) -> AsyncIterator[Registry]:
    """Open a registry over rows and bytes that outlive it, so many hours after the beginning."""
    async with open_registry(url, store) as registry:
        registry.clock.advance(hours * 3600)
        yield registry


def copy_of(url: str) -> bytes:
    """Return the bytes of a database, as a backup has them."""
    return Path(url.removeprefix("sqlite:///")).read_bytes()


def bring_back(url: str, copy: bytes) -> None:
    """Put a copy of a database in its place."""
    Path(url.removeprefix("sqlite:///")).write_bytes(copy)


def lose(url: str, statements: Sequence[str]) -> None:
    """Change rows behind the registry's back; no key refuses."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw:
        for statement in statements:
            assert raw.execute(statement).rowcount > 0, statement
        raw.commit()


async def try_to_clean(registry: Registry, store: MemoryStore) -> str:
    """Collect three times; return why the collector would not."""
    reason = ""
    for _ in range(3):
        try:
            await clean(registry, store)
        except IndexIncomplete as error:
            reason = str(error)
    return reason


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ([NO_REFERENCES], "reference count is 0"),
        (["DELETE FROM manifest_blobs", NO_REFERENCES], "blobs are listed, 0 are held"),
        (
            [f"DELETE FROM manifest_blobs WHERE digest = '{digest_of(KEPT)}'", NO_REFERENCES],
            "2 blobs are listed, 1 are held",
        ),
        (["DELETE FROM deleted_manifest_blobs"], "blobs are listed, 0 are held"),
        (["DELETE FROM deleted_manifest_blobs", NO_REFERENCES], "are held|reference count is 0"),
        (["DELETE FROM manifest_bodies", NO_REFERENCES], "its bytes are gone"),
        (["UPDATE manifest_bodies SET body = x'7b7d'", NO_REFERENCES], "hash to something else"),
        (["DELETE FROM repository_blobs"], ""),
        (["DELETE FROM repository_blobs", CONDEMN_ALL], "does not link"),
        ([CONDEMN_ALL], ""),
        (["UPDATE repositories SET image_count = 0, size_bytes = 0"], ""),
        (["DELETE FROM tags"], ""),
    ],
)
async def test_what_was_lost_takes_nothing_with_it(
    sqlite_database: str, lost: Sequence[str], reason: str
) -> None:
    store = MemoryStore()
    async with open_later(sqlite_database, store) as registry:
        await fill(registry, store)
        body = document(KEPT)
        kind = {"content-type": "application/vnd.oci.image.manifest.v1+json"}
        path = "/v2/dev/app/manifests/v1"
        assert (await registry.client.request("PUT", path, body, kind)).status == 201
    lose(sqlite_database, lost)
    async with open_later(sqlite_database, store, hours=12) as registry:
        found = await try_to_clean(registry, store)
        assert bool(found) == bool(reason), found
        if reason:
            assert any(part in found for part in reason.split("|")), found
        assert set(store.files.objects.values()) >= NEEDED


async def test_an_older_database_loses_nothing_it_knows(sqlite_database: str) -> None:
    """A backup is brought back: what was pushed, deleted and collected since is not in it."""
    store = MemoryStore()
    async with open_later(sqlite_database, store) as registry:
        await fill(registry, store)
    backup = copy_of(sqlite_database)
    async with open_later(sqlite_database, store, hours=6) as registry:
        await push_image(registry, b"of a later push")
        kept = f"/v2/dev/app/manifests/{digest_of(document(KEPT))}"
        assert (await registry.client.request("DELETE", kept)).status == 202
        await push_blob(registry, b"later garbage")
        await clean(registry, store)
    bring_back(sqlite_database, backup)
    async with open_later(sqlite_database, store, hours=12) as registry:
        assert await try_to_clean(registry, store) == ""
        assert set(store.files.objects.values()) >= NEEDED
        await check_image(registry, KEPT)


async def test_many_bytes_of_a_later_database_are_left_alone(
    sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The database is another one altogether: all the bytes look like orphans."""
    store = MemoryStore()
    backup = copy_of(sqlite_database)
    async with open_later(sqlite_database, store) as registry:
        for number in range(30):
            await push_blob(registry, b"%d" % number)
    ids = {object_id: f"{object_id[:-2]}07" for object_id in store.files.objects}  # in one
    store.files.objects = {ids[object_id]: data for object_id, data in store.files.objects.items()}
    bring_back(sqlite_database, backup)
    async with open_later(sqlite_database, store, hours=12) as registry:
        await clean(registry, store)
    assert len(store.files.objects) == 30
    assert "30 of 30 stored files belong to no row" in caplog.text
