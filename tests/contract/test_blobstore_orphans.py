"""What every blob store promises of objects and staged bytes that no row names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from registry.blobstore.base import ObjectUnknown
from registry.blobstore.store import BlobStore
from registry.oci.digest import digest_of
from tests.contract.blob_stores import (
    DATA,
    KINDS,
    PLAIN_KINDS,
    listed,
    new_id,
    opened_store,
    put,
    read,
    stored_size,
    write,
)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    with opened_store(request.param, tmp_path / "blobs") as found:
        yield found


async def test_an_object_set_aside_comes_back_to_who_asks_for_it(store: BlobStore) -> None:
    object_id = await put(store, DATA)
    size = stored_size(store, len(DATA))
    place = object_id[-2:]
    assert place in store.partitions()
    assert await listed(store.list_objects(place)) == [(object_id, size)]
    assert await store.set_aside(object_id, 7)
    assert not await store.set_aside(object_id, 8)
    assert await listed(store.list_objects()) == []
    assert await listed(store.list_ids(place)) == []
    assert await listed(store.list_orphans()) == [(object_id, 7, True, size)]
    assert await read(store, object_id) == DATA
    assert await listed(store.list_orphans()) == []
    assert await listed(store.list_ids(place)) == [object_id]
    assert not await store.take_back(object_id)


async def test_staged_bytes_set_aside_come_back_to_who_goes_on(store: BlobStore) -> None:
    upload_id = new_id()
    async with aclosing(await store.stage(upload_id, None)) as staged:
        write(staged, DATA)
        staged.flush()
    assert not await store.set_aside(upload_id, 7, staged_too=False)
    async with aclosing(await store.resume(upload_id)):  # as the scan holds what it moves
        assert await store.set_aside(upload_id, 7)
    assert [each[:3] for each in await listed(store.list_orphans())] == [(upload_id, 7, False)]
    assert await listed(store.list_staged()) == []
    with pytest.raises(ObjectUnknown):
        await store.open(new_id())
    async with aclosing(await store.resume(upload_id)) as staged:
        await staged.rewind(len(DATA), data_key=None)
        assert staged.commit(digest_of(DATA)).size == len(DATA)
    assert await read(store, upload_id) == DATA


async def test_an_orphan_is_deleted_for_good(store: BlobStore) -> None:
    object_id, other = await put(store, DATA), await put(store, DATA)
    for each in (object_id, other):
        assert await store.set_aside(each, 7)
    (orphan,) = [each async for each in store.list_orphans() if each.object_id == object_id]
    await store.delete_orphan(orphan)
    await store.delete_orphan(orphan)
    with pytest.raises(ObjectUnknown):
        await store.open(object_id)
    assert await store.take_back(other)
    assert await read(store, other) == DATA


@pytest.mark.parametrize("store", PLAIN_KINDS, indirect=True)
async def test_partitions_hold_every_object_once(store: BlobStore) -> None:
    objects = sorted([await put(store, b"x") for _ in range(20)])
    partitions = store.partitions()
    assert partitions == store.partitions()
    by_place = {place: await listed(store.list_ids(place)) for place in partitions}
    assert sorted(each for ids in by_place.values() for each in ids) == objects
    empty = next(place for place, ids in by_place.items() if not ids)
    for place, ids in by_place.items():
        if ids or place == empty:
            found = await listed(store.list_objects(place))
            assert sorted(each.object_id for each in found) == sorted(ids)


async def test_one_process_scans_at_a_time(store: BlobStore) -> None:
    async with store.scan_alone() as is_alone:
        assert is_alone
    async with store.scan_alone() as is_alone:
        assert is_alone


async def test_files_of_others_among_the_orphans_are_left_alone(tmp_path: Path) -> None:
    object_id = new_id()
    with opened_store("filesystem", tmp_path / "blobs") as store:
        shape = f"7.object.{object_id.replace('-', '_')}"
        for name in ("readme", f"then.object.{object_id}", shape):
            (tmp_path / "blobs" / "orphans" / name).touch()
        assert await listed(store.list_orphans()) == []
        assert not await store.take_back(object_id)
        assert not await store.set_aside(object_id, 7)
    assert len(list((tmp_path / "blobs" / "orphans").iterdir())) == 3


@pytest.mark.parametrize("kind", ["filesystem", "filesystem-sealed"])
async def test_an_orphan_replaces_no_file_that_has_its_id_by_now(kind: str, tmp_path: Path) -> None:
    """As after an older copy of the files was brought back beside the orphans."""
    with opened_store(kind, tmp_path / "blobs") as store:
        object_id = await put(store, DATA)
        home = tmp_path / "blobs" / "objects" / object_id[-2:] / object_id
        kept = home.read_bytes()
        assert await store.set_aside(object_id, 7)
        home.write_bytes(b"other bytes")
        assert not await store.take_back(object_id)
        assert home.read_bytes() == b"other bytes"
        assert [each[:2] for each in await listed(store.list_orphans())] == [(object_id, 7)]
        home.unlink()
        assert await store.take_back(object_id)
        assert home.read_bytes() == kept
