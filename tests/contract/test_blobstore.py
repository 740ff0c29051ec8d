"""What every blob store promises, checked on each implementation."""

from __future__ import annotations

import hashlib
import os
import random
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from registry.blobstore.base import BlobStore, ObjectDamaged, ObjectUnknown, StageBusy, Staged
from registry.blobstore.filesystem import FilesystemStore
from registry.blobstore.memory import MemoryStore
from registry.errors import DigestMismatch, StoreUnavailable
from registry.oci.digest import ALGORITHMS, digest_of

DATA = random.Random(7).randbytes(700_001)
BAD_IDS = (
    "",
    ".",
    "..",
    "../objects",
    "0",
    "/etc/passwd",
    "A0A0A0A0-0000-4000-8000-000000000000",
    "a0a0a0a0000040008000000000000000",
    "{a0a0a0a0-0000-4000-8000-000000000000}",
    "a0a0a0a0-0000-4000-8000-000000000000\n",
    "a0a0a0a0-0000-4000-8000-00000000000\u0660",
    "a0a0a0a0-0000-4000-8000-00000000/..",
    "a0a0a0a0-0000-4000-8000-0000000000\x000",
)


@pytest.fixture(params=["filesystem", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    if request.param == "memory":
        yield MemoryStore()
    else:
        with closing(FilesystemStore(tmp_path / "blobs")) as filesystem:
            yield filesystem


def new_id() -> str:
    return str(uuid.uuid4())


def write(staged: Staged, data: bytes) -> None:
    staged.write(memoryview(data))


def put(store: BlobStore, data: bytes) -> str:
    with closing(store.stage(new_id())) as staged:
        write(staged, data)
        return staged.commit(digest_of(data)).object_id


def read(store: BlobStore, object_id: str, start: int = 0, stop: int | None = None) -> bytes:
    with closing(store.open(object_id, start, stop)) as stored:
        return b"".join(bytes(chunk) for chunk in stored.chunks())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("hint", [None, *ALGORITHMS])
@pytest.mark.parametrize("size", [0, 1, len(DATA)])
def test_a_commit_verifies_any_algorithm_and_files_under_sha256(
    store: BlobStore, algorithm: str, hint: str | None, size: int
) -> None:
    data = DATA[:size]
    upload_id = new_id()
    with closing(store.stage(upload_id, hint)) as staged:
        write(staged, data)
        assert staged.offset == size
        stored = staged.commit(digest_of(data, algorithm))
    alias = None if algorithm == "sha256" else digest_of(data, algorithm)
    assert stored == (upload_id, digest_of(data), alias, size, size, "plain")
    assert read(store, upload_id) == data
    assert list(store.list_objects()) == [(upload_id, size)]
    assert list(store.list_staged()) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_mismatch_discards_the_bytes_and_frees_the_id(store: BlobStore, algorithm: str) -> None:
    upload_id = new_id()
    staged = store.stage(upload_id)
    write(staged, DATA)
    with pytest.raises(DigestMismatch):
        staged.commit(digest_of(b"something else", algorithm))
    staged.close()
    assert list(store.list_staged()) == []
    assert list(store.list_objects()) == []
    store.stage(upload_id).close()


def test_a_range_is_the_bytes_from_start_to_stop(store: BlobStore) -> None:
    object_id = put(store, DATA)
    size = len(DATA)
    for start, stop in ((0, 0), (0, 1), (5, 262_150), (size - 1, size), (size, size), (9, None)):
        assert read(store, object_id, start, stop) == DATA[start:stop]


def test_an_object_shorter_than_the_range_is_damage_not_absence(store: BlobStore) -> None:
    object_id = put(store, b"short")
    for start, stop in ((0, 6), (6, 6), (6, None)):
        with pytest.raises(StoreUnavailable):
            store.open(object_id, start, stop)
    with pytest.raises(ValueError, match="range"):
        store.open(object_id, -1)
    with pytest.raises(ValueError, match="range"):
        store.open(object_id, 3, 2)


def test_an_object_of_another_size_than_expected_is_damaged(store: BlobStore) -> None:
    object_id = put(store, b"short")
    store.open(object_id, 0, 5, 5).close()
    for size in (4, 6):
        with pytest.raises(ObjectDamaged):
            store.open(object_id, 0, 0, size)


@pytest.mark.parametrize("is_gone", [True, False])
def test_an_object_takes_the_bytes_of_one_just_committed(
    store: BlobStore, *, is_gone: bool
) -> None:
    object_id = put(store, b"damaged")
    with closing(store.open(object_id)) as before:
        if is_gone:
            store.delete(object_id)
        with closing(store.stage(new_id())) as staged:
            write(staged, DATA)
            new = staged.commit(digest_of(DATA)).object_id
            store.replace(object_id, new)
        assert b"".join(map(bytes, before.chunks())) == b"damaged"
    assert read(store, object_id) == DATA
    assert list(store.list_objects()) == [(object_id, len(DATA))]
    with pytest.raises(ObjectUnknown):
        store.replace(object_id, new)
    assert read(store, object_id) == DATA


def test_a_file_region_holds_the_same_bytes_as_the_chunks(tmp_path: Path) -> None:
    with (
        closing(FilesystemStore(tmp_path)) as store,
        closing(store.open(put(store, DATA), 100, 300_000)) as stored,
    ):
        region = stored.file_region
        assert region is not None
        assert os.pread(region.descriptor, region.count, region.offset) == DATA[100:300_000]
    memory = MemoryStore()
    assert memory.open(put(memory, DATA)).file_region is None


def test_what_is_not_there_is_unknown_and_its_deletion_succeeds(store: BlobStore) -> None:
    with pytest.raises(ObjectUnknown):
        store.open(new_id())
    with pytest.raises(ObjectUnknown):
        store.resume(new_id())
    store.discard(new_id())
    store.delete(new_id())
    store.remove_duplicate(new_id())


def test_a_reader_finishes_after_the_object_is_deleted(store: BlobStore) -> None:
    object_id = put(store, DATA)
    with closing(store.open(object_id)) as stored:
        chunks = stored.chunks()
        body = bytes(next(chunks))
        store.delete(object_id)
        with pytest.raises(ObjectUnknown):
            store.open(object_id)
        assert body + b"".join(bytes(chunk) for chunk in chunks) == DATA
    stored.close()


def test_a_duplicate_is_removed_while_its_writer_still_holds_it(store: BlobStore) -> None:
    with closing(store.stage(new_id())) as staged:
        object_id = staged.commit(digest_of(b"")).object_id
        store.remove_duplicate(object_id)
    assert list(store.list_objects()) == []


def test_staged_bytes_are_held_by_one_writer(store: BlobStore) -> None:
    upload_id = new_id()
    staged = store.stage(upload_id)
    for take in (store.stage, store.resume, store.discard):
        with pytest.raises(StageBusy):
            take(upload_id)
    staged.close()
    with pytest.raises(StageBusy):
        store.stage(upload_id)
    with closing(store.resume(upload_id)), pytest.raises(StageBusy):
        store.resume(upload_id)
    store.discard(upload_id)
    store.stage(upload_id).close()


def test_a_resumed_upload_goes_on_at_the_acknowledged_offset(store: BlobStore) -> None:
    upload_id = new_id()
    with closing(store.stage(upload_id)) as staged:
        write(staged, DATA[:300])
        digests = staged.flush()
        write(staged, b"never acknowledged")
    with closing(store.resume(upload_id)) as staged:
        assert staged.offset == 318
        staged.rewind(300, digests)
        assert staged.offset == 300
        write(staged, DATA[300:])
        staged.commit(digest_of(DATA))
    assert read(store, upload_id) == DATA


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_flush_tells_the_digest_of_what_is_staged(store: BlobStore, algorithm: str) -> None:
    upload_id = new_id()
    with closing(store.stage(upload_id, algorithm)) as staged:
        write(staged, DATA)
        digests = dict(staged.flush())
    assert digests["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert f"{algorithm}:{digests[algorithm]}" == digest_of(DATA, algorithm)
    with closing(store.resume(upload_id)) as staged:
        staged.rewind(len(DATA), digests, algorithm)
        assert staged.commit(digest_of(DATA, algorithm)).digest == digest_of(DATA)


def test_a_writer_may_rewind_at_any_time(store: BlobStore) -> None:
    upload_id = new_id()
    with closing(store.stage(upload_id)) as staged:
        staged.rewind(0, {"sha256": hashlib.sha256().hexdigest()}, "blake3")
        write(staged, DATA[:500])
        assert set(staged.flush()) == {"sha256", "blake3"}
        write(staged, b"unwanted")
        staged.rewind(200)
        assert staged.offset == 200
        write(staged, DATA[200:])
        staged.commit(digest_of(DATA, "blake3"))
        with pytest.raises(ValueError, match="committed"):
            staged.rewind(0)
    assert read(store, upload_id) == DATA


def test_fewer_bytes_than_acknowledged_are_unknown(store: BlobStore) -> None:
    upload_id = new_id()
    store.stage(upload_id).close()
    with closing(store.resume(upload_id)) as staged:
        for offset in (1, -1):
            with pytest.raises(ObjectUnknown):
                staged.rewind(offset)


def test_an_object_stays_held_until_its_row_is_written(store: BlobStore) -> None:
    upload_id = new_id()
    staged = store.stage(upload_id)
    staged.commit(digest_of(b""))
    with pytest.raises(StageBusy):
        store.resume(upload_id)
    staged.discard()
    with pytest.raises(StageBusy):
        store.stage(upload_id)
    staged.close()
    assert read(store, upload_id) == b""


def test_an_object_without_a_row_is_taken_back_by_rewind_alone(store: BlobStore) -> None:
    object_id = put(store, DATA)
    with closing(store.resume(object_id)):
        assert read(store, object_id) == DATA
    with closing(store.resume(object_id)) as staged:
        staged.discard()
    assert read(store, object_id) == DATA
    with closing(store.resume(object_id)) as staged:
        staged.rewind(10)
        with pytest.raises(ObjectUnknown):
            store.open(object_id)
        staged.commit(digest_of(DATA[:10]))
    assert read(store, object_id) == DATA[:10]


def test_an_objects_id_is_never_staged_again(store: BlobStore) -> None:
    object_id = put(store, DATA)
    with pytest.raises(StageBusy):
        store.stage(object_id)


def test_a_writer_that_let_go_can_do_no_harm(store: BlobStore) -> None:
    object_id = put(store, DATA)
    staged = store.stage(new_id())
    staged.close()
    resumed = store.resume(object_id)
    for writer in (staged, resumed):
        with pytest.raises(ValueError, match="staged bytes are"):
            write(writer, b"x")
        with pytest.raises(ValueError, match="staged bytes are"):
            writer.flush()
        with pytest.raises(ValueError, match="staged bytes are"):
            writer.commit(digest_of(b""))
    staged.discard()
    assert len(list(store.list_staged())) == 1
    resumed.close()
    assert read(store, object_id) == DATA


@pytest.mark.parametrize("bad_id", BAD_IDS)
def test_only_canonical_ids_are_taken(store: BlobStore, bad_id: str) -> None:
    for call in (
        store.stage,
        store.resume,
        store.discard,
        store.open,
        store.delete,
        store.remove_duplicate,
    ):
        with pytest.raises(ValueError, match="lower-case UUID"):
            call(bad_id)


def test_an_object_set_aside_comes_back_to_who_asks_for_it(store: BlobStore) -> None:
    object_id = put(store, DATA)
    assert store.set_aside(object_id, 7)
    assert not store.set_aside(object_id, 8)
    assert list(store.list_objects()) == []
    assert list(store.list_ids(int(object_id[-2:], 16))) == []
    assert list(store.list_orphans()) == [(object_id, 7, True, len(DATA))]
    assert read(store, object_id) == DATA
    assert list(store.list_orphans()) == []
    assert list(store.list_ids(int(object_id[-2:], 16))) == [object_id]
    assert not store.take_back(object_id)


def test_staged_bytes_set_aside_come_back_to_who_goes_on(store: BlobStore) -> None:
    upload_id = new_id()
    with closing(store.stage(upload_id)) as staged:
        write(staged, DATA)
    assert not store.set_aside(upload_id, 7, staged_too=False)
    with closing(store.resume(upload_id)):  # as the patrol holds what it moves
        assert store.set_aside(upload_id, 7)
    assert list(store.list_orphans()) == [(upload_id, 7, False, len(DATA))]
    assert list(store.list_staged()) == []
    with pytest.raises(ObjectUnknown):
        store.open(new_id())
    with closing(store.resume(upload_id)) as staged:
        staged.rewind(len(DATA))
        assert staged.commit(digest_of(DATA)).size == len(DATA)
    assert read(store, upload_id) == DATA


def test_an_orphan_is_deleted_for_good(store: BlobStore) -> None:
    object_id, other = put(store, DATA), put(store, DATA)
    for each in (object_id, other):
        assert store.set_aside(each, 7)
    (orphan,) = [each for each in store.list_orphans() if each.object_id == object_id]
    store.delete_orphan(orphan)
    store.delete_orphan(orphan)
    with pytest.raises(ObjectUnknown):
        store.open(object_id)
    assert store.take_back(other)
    assert read(store, other) == DATA


def test_the_last_generation_is_kept(store: BlobStore) -> None:
    assert store.generation() is None
    for each in (new_id(), new_id()):
        store.note_generation(each)
        assert store.generation() == each
