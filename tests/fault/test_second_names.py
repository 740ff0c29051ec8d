"""Two names of one file, as a power loss or a backup of links leaves them: no byte is changed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from registry.blobstore.base import ObjectUnknown
from registry.blobstore.disk.files import DiskFiles
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from tests.fault.operations import Operation, watched

BLOB: Final = b"layer" * 1000
FIRST: Final = b"layer" * 10


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskFiles]:
    with closing(DiskFiles(tmp_path)) as files:
        yield files


def commit(store: DiskFiles, upload_id: str) -> None:
    """Make `BLOB` an object."""
    with closing(store.stage(upload_id)) as staged:
        staged.write(memoryview(BLOB))
        staged.commit(digest_of(BLOB))


def object_file(root: Path, object_id: str) -> Path:
    return root / "objects" / object_id[-2:] / object_id


def test_a_rename_undone_by_half_is_resumed(store: DiskFiles, tmp_path: Path) -> None:
    upload_id = str(uuid4())
    commit(store, upload_id)
    second = tmp_path / "uploads" / upload_id
    os.link(object_file(tmp_path, upload_id), second)
    with closing(store.resume(upload_id)):
        assert not second.exists()
        assert object_file(tmp_path, upload_id).read_bytes() == BLOB
    with closing(store.resume(upload_id)) as staged:
        staged.rewind(len(FIRST))
        staged.write(memoryview(BLOB)[len(FIRST) :])
        staged.commit(digest_of(BLOB))
    assert not second.exists()
    assert object_file(tmp_path, upload_id).read_bytes() == BLOB


def test_a_second_name_that_cannot_be_removed_leaves_no_hold(
    store: DiskFiles, tmp_path: Path
) -> None:
    upload_id = str(uuid4())
    commit(store, upload_id)
    os.link(object_file(tmp_path, upload_id), tmp_path / "uploads" / upload_id)

    def refuse(operation: Operation) -> Any:  # noqa: ANN401 - any system call
        if operation.name == "unlink":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return operation.call()

    with watched(refuse), pytest.raises(StoreUnavailable):
        store.resume(upload_id)
    store.resume(upload_id).close()


@pytest.mark.parametrize("offset", [0, len(FIRST), len(BLOB)])
def test_bytes_that_heal_another_object_are_never_cut_through_an_upload(
    store: DiskFiles, tmp_path: Path, offset: int
) -> None:
    """An older database still knows the session; its file was moved to another id since."""
    kept, upload_id = str(uuid4()), str(uuid4())
    commit(store, kept)
    commit(store, upload_id)
    second = tmp_path / "uploads" / upload_id
    os.link(object_file(tmp_path, upload_id), second)
    object_file(tmp_path, upload_id).rename(object_file(tmp_path, kept))
    with closing(store.resume(upload_id)) as staged:
        with pytest.raises(ObjectUnknown):
            staged.rewind(offset)
        staged.discard()
    assert not second.exists()
    assert object_file(tmp_path, kept).read_bytes() == BLOB


@pytest.mark.parametrize("is_staged", [True, False])
def test_an_orphan_with_a_second_name_leaves_the_bytes(
    store: DiskFiles, tmp_path: Path, is_staged: bool
) -> None:
    upload_id, kept = str(uuid4()), str(uuid4())
    commit(store, kept)
    second = tmp_path / "uploads" / upload_id if is_staged else object_file(tmp_path, upload_id)
    os.link(object_file(tmp_path, kept), second)
    assert store.set_aside(upload_id, 1)
    for orphan in store.list_orphans():
        store.delete_orphan(orphan)
    assert list(store.list_orphans()) == []
    assert object_file(tmp_path, kept).read_bytes() == BLOB


def test_a_session_whose_file_is_shared_begins_anew(store: DiskFiles, tmp_path: Path) -> None:
    upload_id = str(uuid4())
    with closing(store.stage(upload_id)) as staged:
        staged.write(memoryview(FIRST))
        digests = staged.flush()
    backup = tmp_path / "backup"
    os.link(tmp_path / "uploads" / upload_id, backup)
    with closing(store.resume(upload_id)) as staged:
        with pytest.raises(ObjectUnknown):
            staged.rewind(len(FIRST), digests)
        staged.discard()
    assert backup.read_bytes() == FIRST
