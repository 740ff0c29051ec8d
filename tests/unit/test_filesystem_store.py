"""What only the store on a disk promises: layout, modes, holds between processes, no traces."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from registry.blobstore.base import ObjectDamaged, ObjectUnknown, StageBusy
from registry.blobstore.disk import disk_io
from registry.blobstore.disk.disk_io import start_writeback, unavailable
from registry.blobstore.disk.files import DiskFiles
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from tests.descriptors import list_open

UPLOAD = "0b5e7c56-6f0e-4c2b-9c39-5a2f6f1d3eab"

HOLDER = """
import sys, pathlib
from registry.blobstore.disk.files import DiskFiles
staged = DiskFiles(pathlib.Path(sys.argv[1])).stage(sys.argv[2])
staged.write(memoryview(b"staged elsewhere"))
print(staged.flush()["sha256"], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskFiles]:
    with closing(DiskFiles(tmp_path / "data" / "blobs")) as filesystem:
        yield filesystem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data" / "blobs"


def put(store: DiskFiles, data: bytes, upload_id: str = UPLOAD) -> None:
    with closing(store.stage(upload_id)) as staged:
        staged.write(memoryview(data))
        staged.commit(digest_of(data))


def test_files_lie_where_the_layout_says_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with closing(DiskFiles(tmp_path / "blobs")) as store:
            put(store, b"data")
            store.stage(str(uuid.UUID(int=1))).close()
    finally:
        os.umask(before)
    root = tmp_path / "blobs"
    files = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    assert set(files) == {f"objects/ab/{UPLOAD}", f"uploads/{uuid.UUID(int=1)}"}
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    assert len(folders) == 1 + 3 + 256


def test_opening_a_store_again_keeps_what_it_holds(store: DiskFiles, root: Path) -> None:
    put(store, b"data")
    with closing(DiskFiles(root)) as again, closing(again.open(UPLOAD)) as stored:
        assert b"".join(bytes(chunk) for chunk in stored.chunks()) == b"data"


def test_every_folder_that_is_made_has_a_durable_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(disk_io, "flush_folder", flushed.append)
    for _ in range(2):
        disk_io.make_folder(tmp_path / "data" / "of" / "blobs")
    made = [tmp_path, tmp_path / "data", tmp_path / "data" / "of"]
    assert sorted(flushed) == sorted(map(str, made))


def test_a_hold_excludes_other_processes_and_dies_with_its_own(
    store: DiskFiles, root: Path
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), UPLOAD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with holder:
        assert holder.stdout is not None
        digest = holder.stdout.readline().decode().strip()
        for take in (store.stage, store.resume, store.discard):
            with pytest.raises(StageBusy):
                take(UPLOAD)
        holder.send_signal(signal.SIGKILL)
    with closing(store.resume(UPLOAD)) as staged:
        staged.rewind(16, {"sha256": digest})
        assert staged.commit(digest_of(b"staged elsewhere")).size == 16


def test_a_workers_hashers_are_not_believed_after_another_rewrote_the_bytes(
    store: DiskFiles, root: Path
) -> None:
    with closing(store.stage(UPLOAD)) as staged:
        staged.write(memoryview(b"AAAA"))
        staged.flush()
    with closing(DiskFiles(root)) as other, closing(other.resume(UPLOAD)) as staged:
        staged.rewind(0)  # the first worker's answer was lost before its row was written
        staged.write(memoryview(b"BBBB"))
        digests = staged.flush()
    with closing(store.resume(UPLOAD)) as staged:
        staged.rewind(4, digests)
        staged.write(memoryview(b"CCCC"))
        assert staged.commit(digest_of(b"BBBBCCCC")).digest == digest_of(b"BBBBCCCC")


@pytest.mark.parametrize("winner", ["discard", "commit", "replace"])
def test_a_file_that_moved_before_its_lock_is_not_held(
    store: DiskFiles, root: Path, monkeypatch: pytest.MonkeyPatch, winner: str
) -> None:
    store.stage(UPLOAD).close()
    flock = fcntl.flock

    def overtaken(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        if winner == "commit":
            with closing(store.resume(UPLOAD)) as staged:
                staged.rewind(0)
                staged.commit(digest_of(b""))
        else:
            store.discard(UPLOAD)
        if winner == "replace":
            store.stage(UPLOAD).close()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    before = list_open(root)
    if winner == "commit":
        with closing(store.resume(UPLOAD)) as staged:  # found again, as the object it became
            staged.discard()
        with closing(store.open(UPLOAD)) as stored:
            assert list(stored.chunks()) == []
    else:
        with pytest.raises(ObjectUnknown if winner == "discard" else StageBusy):
            store.resume(UPLOAD)
    assert list_open(root) == before


def test_an_object_taken_back_between_two_looks_is_found(
    store: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, b"data")
    real_open = os.open

    def overtaken(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path.startswith("ab/"):
            monkeypatch.setattr(os, "open", real_open)
            with closing(store.resume(UPLOAD)) as staged:
                staged.rewind(3)
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", overtaken)
    with closing(store.resume(UPLOAD)) as staged:
        assert staged.offset == 3


def test_a_new_file_discarded_before_its_lock_is_busy(
    store: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def overtaken(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        store.discard(UPLOAD)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    with pytest.raises(StageBusy):
        store.stage(UPLOAD)


def test_refusals_leave_no_descriptor_open(store: DiskFiles, root: Path) -> None:
    put(store, b"data")
    other = str(uuid.UUID(int=1))
    with closing(store.stage(other)):
        before = list_open(root)
        for _ in range(3):
            for call in (store.stage, store.resume, store.discard):
                with pytest.raises(StageBusy):
                    call(other)
            with pytest.raises(StageBusy):
                store.stage(UPLOAD)
            with pytest.raises(ObjectDamaged):
                store.open(UPLOAD, 5)
            with pytest.raises(ObjectDamaged):
                store.open_cached(UPLOAD, 5)
            with pytest.raises(ObjectUnknown):
                store.open(str(uuid.UUID(int=2)))
        assert list_open(root) == before


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let every open fail with EMFILE, as a busy server sees it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_many_open_files_is_unavailable_and_passes(store: DiskFiles) -> None:
    put(store, b"data")
    other = str(uuid.UUID(int=1))
    store.stage(other).close()
    calls = (store.open, store.resume, store.discard, lambda _: list(store.list_objects()))
    for call in calls:
        with no_descriptor_left(), pytest.raises(StoreUnavailable, match=r"failed \(EMFILE\)"):
            call(UPLOAD if call == store.open else other)
    with no_descriptor_left(), pytest.raises(StoreUnavailable, match=r"failed \(EMFILE\)"):
        store.stage(str(uuid.UUID(int=2)))
    staged = store.resume(other)
    staged.rewind(0)
    with no_descriptor_left(), pytest.raises(StoreUnavailable):
        staged.commit(digest_of(b""))
    with closing(store.open(UPLOAD)) as stored:
        assert b"".join(bytes(chunk) for chunk in stored.chunks()) == b"data"


def test_strangers_in_the_folders_are_left_alone(store: DiskFiles, root: Path) -> None:
    put(store, b"data")
    for name in ("objects/ab/lost+found", "objects/ab/notes.txt", "uploads/.hidden"):
        (root / name).write_bytes(b"?")
    assert [each.object_id for each in store.list_objects()] == [UPLOAD]
    assert list(store.list_staged()) == []


def test_a_link_in_an_objects_place_is_not_followed(store: DiskFiles, root: Path) -> None:
    (root / "objects" / "ab" / UPLOAD).symlink_to("/etc/passwd")
    with pytest.raises(StoreUnavailable, match="ELOOP"):
        store.open(UPLOAD)


def test_staged_bytes_cut_by_a_stranger_never_become_an_object(
    store: DiskFiles, root: Path
) -> None:
    with closing(store.stage(UPLOAD)) as staged:
        staged.write(memoryview(b"data"))
        os.truncate(root / "uploads" / UPLOAD, 3)
        with pytest.raises(StoreUnavailable, match="EIO"):
            staged.commit(digest_of(b"data", "sha512"))  # has to read the bytes again
        with pytest.raises(StoreUnavailable, match="discarded"):
            staged.flush()
    assert list(store.list_objects()) == []
    assert list(store.list_staged()) == []


def test_an_object_cut_while_it_is_read_ends_in_an_error(store: DiskFiles, root: Path) -> None:
    put(store, b"d" * 600_000)
    with closing(store.open(UPLOAD)) as stored:
        chunks = stored.chunks()
        next(chunks)
        os.truncate(root / "objects" / "ab" / UPLOAD, 262_144)
        with pytest.raises(StoreUnavailable, match="shorter"):
            next(chunks)
    with pytest.raises(ValueError, match="closed"):
        next(stored.chunks())


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, "the blob store is full"),
        (errno.EDQUOT, "the blob store is full"),
        (errno.EIO, "the blob store failed (EIO)"),
    ],
)
def test_errors_name_their_kind_and_no_path(code: int, message: str) -> None:
    assert unavailable(OSError(code, "text", "/secret/path")).message == message


def test_a_failed_writeback_condemns_like_a_failed_flush(
    store: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges: list[tuple[int, int]] = []

    def failing(_: int, offset: int, count: int, flags: int) -> int:
        assert flags == 2  # SYNC_FILE_RANGE_WRITE: the others would consume errors
        ranges.append((offset, count))
        ctypes.set_errno(errno.EIO)
        return -1 if offset else 0

    monkeypatch.setattr(disk_io, "_native", failing)
    mebibyte = memoryview(bytes(1024 * 1024))
    with closing(store.stage(UPLOAD)) as staged:
        for _ in range(15):
            staged.write(mebibyte)
        assert ranges == [(0, 8 * len(mebibyte))]
        with pytest.raises(StoreUnavailable, match="EIO"):
            staged.write(mebibyte)
        for call in (staged.flush, lambda: staged.write(mebibyte)):
            with pytest.raises(StoreUnavailable, match="discarded"):
                call()
    assert list(store.list_staged()) == []


def test_writeback_reports_failures_but_not_its_absence() -> None:
    reader, writer = os.pipe()
    start_writeback(writer, 0, 1)  # a pipe has none
    os.close(reader)
    os.close(writer)
    with pytest.raises(OSError, match="Bad file descriptor"):
        start_writeback(-1, 0, 1)
