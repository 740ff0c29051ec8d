"""A failed flush of a later chunk: what was acknowledged before stays, and nothing else."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from registry.blobstore.base import DataKey, ObjectUnknown
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.sealed.frame_format import FRAME_BYTES
from registry.errors import DigestMismatch, StoreUnavailable
from registry.oci.digest import digest_of
from tests.fault.operations import Operation, watched
from tests.inprocess import open_registry
from tests.small_frames import KEY

UPLOAD = str(UUID(int=7))
FIRST = b"acknowledged " * 10_000
REST = b"sent again"
DATA = FIRST + REST


class FailingFlush:
    """Fails flush number `when`; notes every operation with its descriptor."""

    def __init__(self, when: int = 0) -> None:
        self.when = when
        self.calls: list[tuple[str, object]] = []

    def __call__(self, operation: Operation) -> Any:  # noqa: ANN401 - any system call
        """Make the call or fail."""
        flushes = [name for name, _ in self.calls].count("fsync")
        self.calls.append((operation.name, operation.arguments[0]))
        if operation.name == "fsync" and flushes == self.when:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return operation.call()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskFiles]:
    with closing(DiskFiles(tmp_path)) as filesystem:
        yield filesystem


@pytest.fixture(params=[None, KEY], ids=["plain", "sealed"])
def key(request: pytest.FixtureRequest) -> DataKey | None:
    found: DataKey | None = request.param
    return found


def acknowledge_first(store: DiskFiles, key: DataKey | None = None) -> dict[str, str]:
    """Stage and flush `FIRST`; return its digests."""
    with closing(store.stage(UPLOAD, None, key)) as staged:
        staged.rewind(0, data_key=key)
        staged.write(memoryview(FIRST))
        return dict(staged.flush())


def fail_to_append(
    store: DiskFiles,
    digests: dict[str, str],
    data: bytes,
    key: DataKey | None = None,
    when: int = 0,
) -> None:
    """Append `data` in a hold of its own, whose flush fails."""
    with watched(FailingFlush(when)), closing(store.resume(UPLOAD)) as staged:
        staged.rewind(len(FIRST), digests, None, key)
        staged.write(memoryview(data))
        with pytest.raises(StoreUnavailable):
            staged.flush()
        with pytest.raises(StoreUnavailable):
            staged.write(memoryview(b"more"))


@pytest.mark.parametrize("when", [0, 1])
def test_the_acknowledged_bytes_stay_and_the_upload_goes_on(
    store: DiskFiles, key: DataKey | None, when: int
) -> None:
    """Sealed bytes are flushed twice: the mark for the acknowledged frame, then the new one."""
    digests = acknowledge_first(store, key)
    fail_to_append(store, digests, b"lost", key, when if key else 0)
    with closing(store.resume(UPLOAD)) as staged:
        staged.rewind(len(FIRST), digests, None, key)
        staged.write(memoryview(REST))
        assert staged.commit(digest_of(DATA)).size == len(DATA)
    with closing(store.open(UPLOAD, len(DATA), key)) as stored:
        assert b"".join(bytes(chunk) for chunk in stored.chunks()) == DATA


def test_frames_after_a_failed_flush_are_stored_and_flushed_anew(store: DiskFiles) -> None:
    """Of sealed bytes: the record of what was acknowledged, and the end of the frame before."""
    frame = bytes(FRAME_BYTES)
    with closing(store.stage(UPLOAD, None, KEY)) as staged:
        staged.write(memoryview(frame + FIRST))
        digests = dict(staged.flush())
    with watched(FailingFlush()), closing(store.resume(UPLOAD)) as staged:
        staged.rewind(FRAME_BYTES + len(FIRST), digests, None, KEY)
        with pytest.raises(StoreUnavailable):
            staged.write(memoryview(frame))
    seen = FailingFlush(when=-1)
    with watched(seen), closing(store.resume(UPLOAD)) as staged:
        staged.rewind(FRAME_BYTES + len(FIRST), digests, None, KEY)
        assert [name for name, _ in seen.calls] == [
            *("open", "flock", "pwrite"),  # the end of the whole frame
            *("ftruncate", "fsync"),  # the length of the last frame
            *("pwrite", "fsync", "ftruncate"),
        ]
        staged.commit(digest_of(frame + FIRST))


def test_the_block_shared_with_what_failed_is_written_and_flushed_anew(
    store: DiskFiles,
) -> None:
    digests = acknowledge_first(store)
    fail_to_append(store, digests, b"lost")
    seen = FailingFlush(when=-1)
    with watched(seen), closing(store.resume(UPLOAD)) as staged:
        staged.rewind(len(FIRST), digests)
    assert [name for name, _ in seen.calls] == ["open", "flock", "pwrite", "fsync", "ftruncate"]
    assert len({descriptor for _, descriptor in seen.calls[1:]}) == 1


@pytest.mark.parametrize("last", [b"", b"lost"])
def test_a_block_the_disk_has_lost_is_found_before_it_becomes_a_blob(
    store: DiskFiles, tmp_path: Path, last: bytes
) -> None:
    """Also when the hold whose flush failed had only written that block anew."""
    digests = acknowledge_first(store)
    fail_to_append(store, digests, b"lost")
    if not last:
        with closing(store.resume(UPLOAD)) as staged:
            staged.rewind(len(FIRST), digests)
            with watched(FailingFlush()), pytest.raises(StoreUnavailable):
                staged.flush()
    with (tmp_path / "uploads" / UPLOAD).open("r+b") as file:
        file.seek(len(FIRST) - 5)
        file.write(b"?")  # what the disk has, once the page is gone from memory
    with closing(store.resume(UPLOAD)) as staged:
        staged.rewind(len(FIRST), digests)
        with pytest.raises(DigestMismatch):
            staged.commit(digest_of(FIRST))


def lose_byte(path: Path, offset: int) -> None:
    """Change a byte of a file, whatever it is."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def test_a_frame_the_disk_has_lost_ends_its_upload(store: DiskFiles, tmp_path: Path) -> None:
    digests = acknowledge_first(store, KEY)
    lose_byte(tmp_path / "uploads" / UPLOAD, len(FIRST) - 5)
    with closing(store.resume(UPLOAD)) as staged, pytest.raises(ObjectUnknown):
        staged.rewind(len(FIRST), digests, None, KEY)


def test_a_whole_frame_the_disk_has_lost_makes_no_blob(store: DiskFiles, tmp_path: Path) -> None:
    data = bytes(FRAME_BYTES) + FIRST
    with closing(store.stage(UPLOAD, None, KEY)) as staged:
        staged.write(memoryview(data))
        digests = dict(staged.flush())
    lose_byte(tmp_path / "uploads" / UPLOAD, FRAME_BYTES // 2)
    with closing(DiskFiles(tmp_path)) as other, closing(other.resume(UPLOAD)) as staged:
        staged.rewind(len(data), {"sha256": digests["sha256"]}, None, KEY)
        with pytest.raises(StoreUnavailable):
            staged.commit(digest_of(data, "blake3"))
    assert list(store.list_objects()) == []
    assert list(store.list_staged()) == []


@pytest.mark.parametrize("compresses", [False, True])
def test_what_is_there_whole_is_flushed_before_it_becomes_a_blob(
    tmp_path: Path,
    compresses: bool,
) -> None:
    """Who wrote its end, or cut off what was behind it, may have died before the flush."""
    with closing(DiskFiles(tmp_path, compresses=compresses)) as store:
        digests = acknowledge_first(store, KEY)
        before = (tmp_path / "uploads" / UPLOAD).read_bytes()
        seen = FailingFlush(when=-1)
        with watched(seen), closing(store.resume(UPLOAD)) as staged:
            staged.rewind(len(FIRST), digests, None, KEY)
            stored = staged.commit(digest_of(FIRST)).stored_size
        assert (stored < len(FIRST) // 2) is compresses
        names = [name for name, _ in seen.calls]
        assert names.index("fsync") < names.index("rename")
        assert "pwrite" not in names
        assert (tmp_path / "objects" / UPLOAD[-2:] / UPLOAD).read_bytes() == before


async def test_a_client_goes_on_where_it_was_acknowledged(
    sqlite_database: str, tmp_path: Path
) -> None:
    digest = digest_of(DATA)
    with closing(FilesystemStore(tmp_path / "blobs")) as blobs:
        async with open_registry(sqlite_database, blobs) as registry:
            ask = registry.client.request
            location = (await ask("POST", "/v2/dev/app/blobs/uploads/")).headers["location"]
            assert (await ask("PATCH", location, FIRST)).status == 202
            for method, target in (("PATCH", location), ("PUT", f"{location}?digest={digest}")):
                with watched(FailingFlush()):
                    assert (await ask(method, target, REST)).status == 503
                session = await ask("GET", location)
                assert (session.status, session.headers["range"]) == (204, f"0-{len(FIRST) - 1}")
            assert (await ask("PATCH", location, REST)).status == 202
            assert (await ask("PUT", f"{location}?digest={digest}")).status == 201
            assert (await ask("GET", f"/v2/dev/app/blobs/{digest}")).body == DATA


async def test_a_single_push_that_cannot_be_flushed_leaves_nothing(
    sqlite_database: str, tmp_path: Path
) -> None:
    with closing(FilesystemStore(tmp_path / "blobs")) as blobs:
        async with open_registry(sqlite_database, blobs) as registry:
            with watched(FailingFlush()):
                target = f"/v2/dev/app/blobs/uploads/?digest={digest_of(DATA)}"
                assert (await registry.client.request("POST", target, DATA)).status == 503
            assert list(blobs.files.list_staged()) == []
            assert list(blobs.files.list_objects()) == []
