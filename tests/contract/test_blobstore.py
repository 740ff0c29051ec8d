"""What every blob store promises, checked on each implementation; a new one is a kind more."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, nullcontext, suppress
from itertools import product
from pathlib import Path

import pytest
from blake3 import blake3

from registry.blobstore.base import ObjectDamaged, ObjectUnknown, StageBusy
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.store import BlobStore
from registry.errors import DigestMismatch, StoreUnavailable
from registry.oci.digest import ALGORITHMS, digest_of
from tests.contract.blob_stores import (
    DATA,
    KINDS,
    ends_copied,
    is_sealing,
    keeps_unflushed,
    listed,
    new_id,
    opened_store,
    put,
    read,
    staged_sizes,
    store_has_frames,
    stored_size,
    write,
)

BAD_IDS = (
    *("", ".", "..", "../objects", "0", "/etc/passwd"),
    "A0A0A0A0-0000-4000-8000-000000000000",
    "a0a0a0a0000040008000000000000000",
    "{a0a0a0a0-0000-4000-8000-000000000000}",
    "a0a0a0a0-0000-4000-8000-000000000000\n",
    "a0a0a0a0-0000-4000-8000-00000000000\u0660",
    "a0a0a0a0-0000-4000-8000-00000000/..",
    "a0a0a0a0-0000-4000-8000-0000000000\x000",
)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    with opened_store(request.param, tmp_path / "blobs") as found:
        yield found


async def test_a_commit_that_expects_nothing_tells_what_the_bytes_hash_to(
    store: BlobStore,
) -> None:
    for data in (b"", DATA):
        async with aclosing(await store.stage(new_id(), None)) as staged:
            write(staged, data)
            stored = staged.commit(None)
        assert (stored.digest, stored.alias) == (digest_of(data), None)
        assert await read(store, stored.object_id) == data


@pytest.mark.parametrize("size", [0, 1, len(DATA)])
async def test_a_commit_verifies_any_algorithm_and_files_under_sha256(
    store: BlobStore, size: int
) -> None:
    data, hints = DATA[:size], (None, *(ALGORITHMS if size > 1 else ()))
    for algorithm, hint in product(ALGORITHMS, hints):
        upload_id = new_id()
        async with aclosing(await store.stage(upload_id, None, hint)) as staged:
            write(staged, data)
            assert staged.offset == size
            stored = staged.commit(digest_of(data, algorithm))
        alias = None if algorithm == "sha256" else digest_of(data, algorithm)
        assert stored[:4] == (upload_id, digest_of(data), alias, size), (algorithm, hint)
        assert stored.stored_size == stored_size(store, size)
        assert stored.encoding == ("sealed" if is_sealing(store) else "plain")
        assert (stored.checksum is None) != is_sealing(store)
        assert await read(store, upload_id) == data
        assert await listed(store.list_objects()) == [(upload_id, stored.stored_size)]
        assert await listed(store.list_staged()) == []
        await store.delete([upload_id])


async def test_a_mismatch_leaves_the_bytes_to_whoever_ends_their_session(store: BlobStore) -> None:
    for algorithm in ALGORITHMS:
        upload_id = new_id()
        staged = await store.stage(upload_id, None)
        write(staged, DATA)
        with pytest.raises(DigestMismatch):
            staged.commit(digest_of(b"something else", algorithm))
        assert await staged_sizes(store, (upload_id, len(DATA)))
        await staged.discard()
        await staged.aclose()
        assert await listed(store.list_staged()) == []
        assert await listed(store.list_objects()) == []
        await (await store.stage(upload_id, None)).aclose()
        await store.discard(upload_id)


@pytest.mark.parametrize("is_object", [False, True])
async def test_a_copy_goes_on_whatever_the_writer_of_its_source_does(
    store: BlobStore, *, is_object: bool
) -> None:
    source_id, copy_id = new_id(), new_id()
    async with aclosing(await store.stage(source_id, None)) as source:
        write(source, DATA[:250_000])
        source.flush()
        write(source, DATA[250_000:300_000])
        if is_object:
            source.commit(digest_of(DATA[:300_000]))
        copy = await store.stage_copy(copy_id, source_id, 250_000, data_key=None)
        async with aclosing(copy):
            assert copy.offset == 250_000
            if not is_object:
                with suppress(StoreUnavailable) if ends_copied(store) else nullcontext():
                    write(source, b"by one that has lost its lease")
                    source.flush()
            write(copy, DATA[250_000:])
            copy.flush()
        if not is_object:
            await source.discard()
    async with aclosing(await store.resume(copy_id)) as resumed:
        await resumed.rewind(len(DATA), {}, data_key=None)
        resumed.commit(digest_of(DATA))
    assert await read(store, copy_id) == DATA


async def test_no_copy_is_made_of_fewer_bytes_than_were_acknowledged(store: BlobStore) -> None:
    source_id, copy_id = new_id(), new_id()
    async with aclosing(await store.stage(source_id, None)) as source:
        write(source, b"short")
        for absent in (source_id, new_id()):
            with pytest.raises(ObjectUnknown):
                await store.stage_copy(copy_id, absent, 6, data_key=None)
        assert await staged_sizes(store, (source_id, 5))
    await (await store.stage(copy_id, None)).aclose()


async def test_a_range_is_the_bytes_from_start_to_stop(store: BlobStore) -> None:
    object_id = await put(store, DATA)
    size = len(DATA)
    for start, stop in ((0, 0), (0, 1), (5, 262_150), (size - 1, size), (size, size), (9, None)):
        assert await read(store, object_id, start, stop) == DATA[start:stop]


async def test_a_range_outside_the_object_is_an_error_of_its_caller(store: BlobStore) -> None:
    async with aclosing(await store.open(await put(store, b"short"))) as stored:
        assert stored.length == 5
        for start, stop in ((0, 6), (6, 6), (6, None), (-1, None), (3, 2)):
            for ask in (stored.file_region, stored.chunks):
                with pytest.raises(ValueError, match="range"):
                    ask(start, stop)
            with pytest.raises(ValueError, match="range"):
                await listed(stored.stream(start, stop))


async def test_an_object_of_another_size_than_expected_is_damaged(store: BlobStore) -> None:
    object_id = await put(store, b"short")
    await (await store.open(object_id, 5)).aclose()
    await store.check(object_id, stored_size(store, 5))
    for size in (4, 6):
        stored = stored_size(store, size)
        assert not store.check_cached(object_id, stored)
        with pytest.raises(ObjectDamaged):
            await store.open(object_id, size)
        with pytest.raises(ObjectDamaged):
            await store.check(object_id, stored)


async def test_stored_bytes_are_read_without_a_key(store: BlobStore) -> None:
    async with aclosing(await store.stage(new_id(), None)) as staged:
        write(staged, DATA)
        made = staged.commit(digest_of(DATA))
    async with aclosing(await store.open_stored(made.object_id, made.stored_size)) as stored:
        assert stored.length == made.stored_size
        whole = b"".join(bytes(chunk) for chunk in stored.chunks())
        assert b"".join([part async for part in stored.stream(5, 300_000)]) == whole[5:300_000]
    if made.checksum is None:
        assert (is_sealing(store), whole) == (False, DATA)
    else:
        assert (is_sealing(store), blake3(whole).hexdigest()) == (True, made.checksum)
    with pytest.raises(ObjectDamaged):
        await store.open_stored(made.object_id, made.stored_size - 1)
    with pytest.raises(ObjectUnknown):
        await store.open_stored(new_id(), made.stored_size)
    assert await store.set_aside(made.object_id, 1)
    await (await store.open_stored(made.object_id, made.stored_size)).aclose()


async def test_a_file_region_if_there_is_one_holds_the_bytes(store: BlobStore) -> None:
    async with aclosing(await store.open(await put(store, DATA))) as stored:
        region = stored.file_region(100, 300_000)
        in_files = isinstance(store, FilesystemStore)
        assert (region is None) == (is_sealing(store) or not in_files)
        if region is not None:
            assert os.pread(region.descriptor, region.count, region.offset) == DATA[100:300_000]


async def test_what_is_not_there_is_unknown_and_its_deletion_succeeds(store: BlobStore) -> None:
    with pytest.raises(ObjectUnknown):
        await store.open(new_id())
    with pytest.raises(ObjectUnknown):
        await store.open_staged(new_id())
    with pytest.raises(ObjectUnknown):
        await store.check(new_id(), 0)
    assert not store.check_cached(new_id(), 0)
    with pytest.raises(ObjectUnknown):
        await store.resume(new_id())
    await store.discard(new_id())
    await store.delete([new_id()])
    await store.remove_duplicate(new_id())


async def test_a_reader_finishes_after_the_object_is_deleted(store: BlobStore) -> None:
    object_id = await put(store, DATA)
    async with aclosing(await store.open(object_id)) as stored:
        chunks = stored.chunks()
        body = bytes(next(chunks))
        await store.delete([object_id])
        with pytest.raises(ObjectUnknown):
            await store.open(object_id)
        assert body + b"".join(bytes(chunk) for chunk in chunks) == DATA
    await stored.aclose()


async def test_a_duplicate_is_removed_while_its_writer_still_holds_it(store: BlobStore) -> None:
    async with aclosing(await store.stage(new_id(), None)) as staged:
        object_id = staged.commit(digest_of(b"")).object_id
        await store.remove_duplicate(object_id)
    assert await listed(store.list_objects()) == []


async def test_staged_bytes_are_held_by_one_writer(store: BlobStore) -> None:
    upload_id = new_id()
    staged = await store.stage(upload_id, None)
    for take in (lambda name: store.stage(name, None), store.resume, store.discard):
        with pytest.raises(StageBusy):
            await take(upload_id)
    await staged.aclose()
    with pytest.raises(StageBusy):
        await store.stage(upload_id, None)
    async with aclosing(await store.resume(upload_id)):
        with pytest.raises(StageBusy):
            await store.resume(upload_id)
    await store.discard(upload_id)
    await (await store.stage(upload_id, None)).aclose()


async def test_a_resumed_upload_goes_on_at_the_acknowledged_offset(store: BlobStore) -> None:
    upload_id = new_id()
    async with aclosing(await store.stage(upload_id, None)) as staged:
        write(staged, DATA[:300])
        digests = staged.flush()
        write(staged, b"never acknowledged")
    async with aclosing(await store.resume(upload_id)) as staged:
        assert is_sealing(store) or staged.offset == (318 if keeps_unflushed(store) else 300)
        await staged.rewind(300, digests, data_key=None)
        assert staged.offset == 300
        write(staged, DATA[300:])
        staged.commit(digest_of(DATA))
    assert await read(store, upload_id) == DATA


async def test_an_upload_goes_on_after_a_wrong_digest_of_an_algorithm_that_it_did_not_hash(
    store: BlobStore,
) -> None:
    """A store may make an object of the bytes to read them, whose parts have ended then."""
    upload_id, middle = new_id(), 450_000
    async with aclosing(await store.stage(upload_id, None)) as staged:
        write(staged, DATA[:middle])
        digests = staged.flush()
        with pytest.raises(DigestMismatch):
            staged.commit(digest_of(DATA, "blake3"))
    async with aclosing(await store.resume(upload_id)) as staged:
        await staged.rewind(middle, digests, data_key=None)
        write(staged, DATA[middle:])
        staged.commit(digest_of(DATA))
    assert await read(store, upload_id) == DATA


async def test_a_writer_may_rewind_at_any_time(store: BlobStore) -> None:
    upload_id = new_id()
    async with aclosing(await store.stage(upload_id, None)) as staged:
        await staged.rewind(0, {"sha256": hashlib.sha256().hexdigest()}, "blake3", data_key=None)
        write(staged, DATA[:500])
        assert set(staged.flush()) == {"sha256", "blake3"}
        write(staged, b"unwanted")
        await staged.rewind(200, data_key=None)
        assert staged.offset == 200
        write(staged, DATA[200:])
        staged.commit(digest_of(DATA, "blake3"))
        with pytest.raises(ValueError, match="committed"):
            await staged.rewind(0, data_key=None)
    assert await read(store, upload_id) == DATA


async def test_fewer_bytes_than_acknowledged_are_unknown(store: BlobStore) -> None:
    upload_id = new_id()
    await (await store.stage(upload_id, None)).aclose()
    async with aclosing(await store.resume(upload_id)) as staged:
        for offset in (1, -1):
            with pytest.raises(ObjectUnknown):
                await staged.rewind(offset, data_key=None)


async def test_an_objects_id_is_never_staged_again(store: BlobStore) -> None:
    object_id = await put(store, DATA)
    with pytest.raises(StageBusy):
        await store.stage(object_id, None)


async def test_an_object_stays_held_until_its_row_is_written(store: BlobStore) -> None:
    upload_id = new_id()
    staged = await store.stage(upload_id, None)
    staged.commit(digest_of(b""))
    with pytest.raises(StageBusy):
        await store.resume(upload_id)
    await staged.discard()
    with pytest.raises(StageBusy):
        await store.stage(upload_id, None)
    await staged.aclose()
    assert await read(store, upload_id) == b""


async def test_an_object_without_a_row_is_taken_back_by_rewind_alone(store: BlobStore) -> None:
    object_id = await put(store, DATA)
    async with aclosing(await store.resume(object_id)):
        assert await read(store, object_id) == DATA
    async with aclosing(await store.resume(object_id)) as staged:
        await staged.discard()
    assert await read(store, object_id) == DATA
    async with aclosing(await store.resume(object_id)) as staged:
        await staged.rewind(10, data_key=None)
        with pytest.raises(ObjectUnknown):
            await store.open(object_id)
        staged.commit(digest_of(DATA[:10]))
    assert await read(store, object_id) == DATA[:10]


async def test_a_writer_that_let_go_can_do_no_harm(store: BlobStore) -> None:
    object_id = await put(store, DATA)
    staged = await store.stage(new_id(), None)
    await staged.aclose()
    resumed = await store.resume(object_id)
    for writer in (staged, resumed):
        with pytest.raises(ValueError, match="staged bytes are"):
            write(writer, b"x")
        with pytest.raises(ValueError, match="staged bytes are"):
            writer.flush()
        with pytest.raises(ValueError, match="staged bytes are"):
            writer.commit(digest_of(b""))
    await staged.discard()
    assert len(await listed(store.list_staged())) == 1
    await resumed.aclose()
    assert await read(store, object_id) == DATA


async def test_only_canonical_ids_are_taken(store: BlobStore) -> None:
    calls: list[Callable[[str], Awaitable[object]]] = [
        *(store.resume, store.discard, store.open, store.open_staged, store.remove_duplicate),
        lambda name: store.stage(name, None),
        lambda name: store.resumable(name, 0),
        lambda name: store.check(name, 0),
        lambda name: store.delete([name]),
    ]
    for call, bad_id in product(calls, BAD_IDS):
        with pytest.raises(ValueError, match="lower-case UUID"):
            await call(bad_id)


async def test_the_last_generation_is_kept(store: BlobStore) -> None:
    assert await store.generation() is None
    for each in (new_id(), new_id()):
        await store.save_generation(each)
        assert await store.generation() == each


async def test_one_of_several_objects_that_is_absent_is_deleted_too(store: BlobStore) -> None:
    first, absent, second = await put(store, DATA), new_id(), await put(store, DATA)
    assert await store.delete([first, absent, second]) == ([first, absent, second], None)
    assert await listed(store.list_objects()) == []


async def test_an_upload_goes_on_from_what_is_there(store: BlobStore) -> None:
    upload_id = new_id()
    assert await store.resumable(upload_id, 100) == 0
    async with aclosing(await store.stage(upload_id, None)) as staged:
        write(staged, DATA[:300])
        staged.flush()
    lost = 0 if store_has_frames(store) else 300  # of sealed bytes, those of whole frames count
    for received, there in ((0, 0), (200, 200), (300, 300), (301, lost)):
        assert await store.resumable(upload_id, received) == there
    assert await store.set_aside(upload_id, 7)
    assert await store.resumable(upload_id, 300) == 300
    object_id = await put(store, DATA)
    assert await store.resumable(object_id, 300) == 300


async def test_a_fresh_id_is_staged_when_there_are_bytes(store: BlobStore) -> None:
    staged = await store.stage(new_id(), None, "blake3", is_fresh=True)
    assert staged.offset == 0
    await staged.discard()
    await staged.aclose()
    assert await listed(store.list_staged()) == []
    with pytest.raises(ValueError, match="staged bytes are"):
        write(staged, b"x")
    for data in (b"", DATA):
        async with aclosing(await store.stage(new_id(), None, "blake3", is_fresh=True)) as staged:
            if data:
                write(staged, data)
                assert (staged.offset, set(staged.flush())) == (len(data), {"sha256", "blake3"})
            object_id = staged.commit(digest_of(data, "blake3")).object_id
            with pytest.raises(StageBusy):
                await store.resume(object_id)
        assert await read(store, object_id) == data
    staged = await store.stage(object_id, None, is_fresh=True)
    with pytest.raises(StageBusy):  # noqa: PT012 - with the first bytes, or with the commit
        write(staged, b"x")
        staged.commit(digest_of(b"x"))
    await staged.aclose()
    assert await read(store, object_id) == DATA
