"""Every state a power loss may leave, at every moment of an upload, recovered by the real store.

The mutants show that the model notices each missing flush.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path

import pytest

from registry.blobstore.base import DataKey, ObjectUnknown
from registry.blobstore.disk_files import DiskFiles
from registry.blobstore.disk_io import disk_errors
from registry.blobstore.folders import object_path
from registry.blobstore.staged_file import StagedFile
from registry.blobstore.staging import refuse_key
from tests.fault.operations import watched
from tests.fault.power_loss import Disk, materialise
from tests.fault.uploads import Plan, check_recovered, plans, upload


class MutantStore(DiskFiles):
    """A store whose staged files lack a flush."""

    staged_type: type[StagedFile] = StagedFile

    def stage(
        self, upload_id: str, algorithm: str | None = None, data_key: DataKey | None = None
    ) -> StagedFile:
        refuse_key(data_key)
        return self.staged_type.create(self._folders, self._hashers, upload_id, algorithm)

    def resume(self, upload_id: str) -> StagedFile:
        with disk_errors():
            return self.staged_type.take_up(self._folders, self._hashers, upload_id)


class WithoutFileFlush(StagedFile):
    def _flush_bytes(self) -> None:
        self._bytes_durable = True


class WithoutEntryFlush(StagedFile):
    def rewind(self, *arguments, **keywords) -> None:  # type: ignore[no-untyped-def] # noqa: ANN002, ANN003
        super().rewind(*arguments, **keywords)
        self._entry_durable = True

    def flush(self) -> dict[str, str]:
        self._entry_durable = True
        return dict(super().flush())


class WithoutFolderFlush(StagedFile):
    def _rename(self) -> None:
        os.rename(
            self._upload_id,
            object_path(self._upload_id),
            src_dir_fd=self._folders.uploads,
            dst_dir_fd=self._folders.objects,
        )


class WithLateFileFlush(StagedFile):
    """Flushes the bytes, but only after they have become an object."""

    def _flush_bytes(self) -> None:
        return

    def _rename(self) -> None:
        super()._rename()
        super()._flush_bytes()


class WithCarelessTakeBack(StagedFile):
    """Takes an object back, but may be found to have changed it in its place."""

    def _take_back(self) -> None:
        name, folders = self._upload_id, self._folders
        os.rename(object_path(name), name, src_dir_fd=folders.objects, dst_dir_fd=folders.uploads)
        self._is_object = False


@pytest.fixture
def recovery(tmp_path: Path) -> Iterator[DiskFiles]:
    with closing(DiskFiles(tmp_path / "after")) as store:
        yield store


def record(store: DiskFiles, root: Path, plan: Plan) -> Disk:
    disk = Disk(root)
    with watched(disk):
        upload(store, plan, disk.acknowledge)
    return disk


def check_every_state(disk: Disk, recovery: DiskFiles, root: Path, plan: Plan) -> int:
    """Recover from each state in turn; return how many different ones there were."""
    seen = set()
    for rows, states in disk.history:
        for names, contents in states:
            mark = (repr(rows), *sorted(names), *contents.values())
            if mark in seen:
                continue
            seen.add(mark)
            materialise((names, contents), root)
            check_recovered(recovery, plan, deepcopy(rows))
            recovery.discard(plan.upload_id)
            recovery.delete(plan.upload_id)
    return len(seen)


def test_no_legal_state_loses_what_was_acknowledged(tmp_path: Path, recovery: DiskFiles) -> None:
    count = 0
    with closing(DiskFiles(tmp_path / "before")) as store:
        for plan in (plan for seed in range(3) for plan in plans(seed)):
            disk = record(store, tmp_path / "before", plan)
            assert disk.rows.committed == {plan.upload_id}
            count += check_every_state(disk, recovery, tmp_path / "after", plan)
    assert count > 150


@pytest.mark.parametrize(
    "mutant",
    [
        WithoutFileFlush,
        WithoutEntryFlush,
        WithoutFolderFlush,
        WithLateFileFlush,
        WithCarelessTakeBack,
    ],
)
def test_a_store_that_lacks_a_flush_is_found_out(
    tmp_path: Path, recovery: DiskFiles, mutant: type[StagedFile]
) -> None:
    plan = plans(0)[2]
    with closing(MutantStore(tmp_path / "before")) as store:
        store.staged_type = mutant
        disk = record(store, tmp_path / "before", plan)
    with pytest.raises((AssertionError, ObjectUnknown)):
        check_every_state(disk, recovery, tmp_path / "after", plan)
    assert disk.rows.committed == {plan.upload_id}
