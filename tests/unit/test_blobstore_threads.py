"""Calls that block run in threads, and what they return is never lost by a cancellation."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from cloudcore.threads import DOCUMENTS, SLOW_KEYS, Threads, each_of
from registry.blobstore.base import ObjectUnknown, StageBusy
from registry.blobstore.disk import disk_io
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.staged_file import StagedFile
from registry.blobstore.disk.stored_file import open_cached
from registry.blobstore.opening import make_folders, open_store
from registry.blobstore.store import BlobStore
from registry.gc.object_check import VERIFYING
from registry.oci.digest import digest_of
from registry.settings.settings import Settings
from tests.descriptors import list_open
from tests.memory_store import at_once

UPLOAD = "0b5e7c56-6f0e-4c2b-9c39-5a2f6f1d3eab"
in_thread = Threads("tests")
STAGED = "4c53fb4e-2c1f-4f0e-8f2d-0d5d4bb60bb1"


class Gate:
    """A call that blocks until it is let go."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> str:
        self.has_begun.set()
        self.may_end.wait()
        return "result"


async def test_a_cancelled_call_ends_first_and_is_undone() -> None:
    gate, undone = Gate(), list[str]()
    task = asyncio.create_task(in_thread(gate, undo=undone.append))
    await asyncio.to_thread(gate.has_begun.wait)
    for _ in range(2):  # also a second cancellation waits
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    gate.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == ["result"]


async def test_blobs_are_opened_while_all_other_threads_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_io, "_system_call", None)  # so that each opening needs a thread
    gates = [Gate() for _ in range(100)]
    async with open_store(Settings(data=tmp_path)) as store:
        await put(store, b"data")
        waiting = [asyncio.create_task(asyncio.to_thread(gate)) for gate in gates]
        waiting += [asyncio.create_task(SLOW_KEYS.run("an account", gate)) for gate in gates]
        waiting += [asyncio.create_task(DOCUMENTS.run("an account", gate)) for gate in gates]
        waiting += [asyncio.create_task(VERIFYING(gate)) for gate in gates]
        try:
            opened = await store.open(UPLOAD, 4)
            assert b"".join([part async for part in opened.stream()]) == b"data"
            await opened.aclose()
        finally:
            for gate in gates:
                gate.may_end.set()
            await asyncio.gather(*waiting)


async def test_what_fails_after_a_cancellation_is_not_undone() -> None:
    gate, undone = Gate(), list[str]()

    def failing() -> str:
        gate()
        raise OSError("refused")

    task = asyncio.create_task(in_thread(failing, undo=undone.append))
    await asyncio.to_thread(gate.has_begun.wait)
    task.cancel()
    gate.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == []


async def test_a_cancelled_stage_leaves_the_bytes_to_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, create = Gate(), StagedFile.create

    def slow(*arguments: object) -> StagedFile:
        staged = create(*arguments)  # type: ignore[arg-type]
        gate()
        return staged

    async with open_store(Settings(data=tmp_path)) as store:
        monkeypatch.setattr(StagedFile, "create", slow)
        task = asyncio.create_task(store.stage(UPLOAD, None))
        await asyncio.to_thread(gate.has_begun.wait)
        task.cancel()
        gate.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await (await store.resume(UPLOAD)).aclose()


async def test_a_listing_is_read_in_batches() -> None:
    entries = iter(range(1100))
    listing = each_of(at_once, entries)
    assert await anext(listing) == 0
    assert next(entries) == 500, "the first 500 were read at once"
    assert [each async for each in listing] == [*range(1, 500), *range(501, 1100)]


async def put(store: BlobStore, data: bytes) -> None:
    staged = await store.stage(UPLOAD, None)
    staged.write(memoryview(data))
    staged.commit(digest_of(data))
    await staged.aclose()


@pytest.mark.skipif(disk_io.lacks_cached_lookups, reason="the kernel has no RESOLVE_CACHED")
async def test_what_the_kernel_has_in_memory_needs_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*_: object, **__: object) -> None:
        raise AssertionError("a thread was used")

    async with open_store(Settings(data=tmp_path)) as store:
        await put(store, b"data")
        async with aclosing(await store.stage(STAGED, None)) as staged:
            staged.write(memoryview(b"staged"))
        monkeypatch.setattr(store, "_run", no_thread)
        assert store.check_cached(UPLOAD, 4)
        await store.check(UPLOAD, 4)
        opened = await store.open(UPLOAD, 4)
        assert opened.length == 4
        await opened.aclose()
        resumed = await store.resume(STAGED)
        await resumed.rewind(6, data_key=None)
        with pytest.raises(StageBusy):
            await store.resume(STAGED)
        await resumed.aclose()


@pytest.mark.parametrize("is_blind", [True, False])
async def test_a_kernel_that_cannot_tell_costs_a_thread_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_blind: bool
) -> None:
    if is_blind:
        monkeypatch.setattr(disk_io, "_system_call", None)
    async with open_store(Settings(data=tmp_path)) as store:
        await put(store, b"data")
        assert store.check_cached(UPLOAD, 4) == (disk_io._system_call is not None)
        await store.check(UPLOAD, 4)
        assert not store.check_cached(UPLOAD, 5)
        opened = await store.open(UPLOAD, 4)
        assert b"".join([part async for part in opened.stream()]) == b"data"
        await opened.aclose()
        await store.delete([UPLOAD])
        with pytest.raises(ObjectUnknown):
            await store.open(UPLOAD)
        with pytest.raises(ObjectUnknown):
            await store.check(UPLOAD, 4)


def test_a_lookup_follows_no_link_and_leaves_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "link").symlink_to("file")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        before = list_open(tmp_path)
        for name in ("link", "absent"):
            assert open_cached(folder, name) is None
        opened = open_cached(folder, "file")
        assert (opened is None) == disk_io.lacks_cached_lookups
        if opened is not None:
            assert not os.get_inheritable(opened.file_region().descriptor)
            opened.close()
        assert list_open(tmp_path) == before
    finally:
        os.close(folder)


async def test_a_store_is_opened_with_its_folders_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[DiskFiles] = []
    close = DiskFiles.close

    def note(files: DiskFiles) -> None:
        closed.append(files)
        close(files)

    monkeypatch.setattr(DiskFiles, "close", note)
    settings = Settings(data=tmp_path)
    async with open_store(settings):
        assert (settings.blobs / "objects" / "ff").is_dir()
        assert closed == []
    assert len(closed) == 1


def test_folders_are_made_before_any_worker(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    make_folders(settings)
    assert len(list((settings.blobs / "objects").iterdir())) == 256


@pytest.mark.skipif(disk_io.lacks_cached_lookups, reason="the kernel has no RESOLVE_CACHED")
def test_what_has_another_name_is_not_taken_up_at_once(tmp_path: Path) -> None:
    with closing(DiskFiles(tmp_path / "blobs")) as files:
        staged = files.stage(STAGED)
        staged.write(memoryview(b"staged"))
        staged.close()
        os.link(tmp_path / "blobs" / "uploads" / STAGED, tmp_path / "backup")
        before = list_open(tmp_path)
        assert files.resume_cached(STAGED) is None
        assert files.resume_cached(UPLOAD) is None
        assert list_open(tmp_path) == before
        files.resume(STAGED).close()


@pytest.mark.parametrize(("size", "is_slow"), [(4096, False), (1024 * 1024, True)])
def test_only_a_large_duplicate_needs_a_thread_to_be_closed(
    tmp_path: Path, size: int, *, is_slow: bool
) -> None:
    data = bytes(size)
    with closing(DiskFiles(tmp_path / "blobs")) as files, closing(files.stage(UPLOAD)) as staged:
        staged.write(memoryview(data))
        staged.commit(digest_of(data))
        assert not staged.closes_slowly
        files.delete(UPLOAD)
        assert staged.closes_slowly == is_slow


def test_a_system_without_the_call_is_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_io, "_OPENAT2", 1 << 20)
    assert disk_io._find_system_call() is None
    monkeypatch.setattr("sys.platform", "freebsd")
    assert disk_io._find_system_call() is None
