"""Every state a power loss may leave, at every moment of an upload, recovered by the real store.

The mutants show that the model notices each missing flush.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown
from registry.blobstore.disk.disk_io import disk_errors
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.folders import object_path
from registry.blobstore.disk.staged_file import StagedFile
from registry.blobstore.sealed.layout import marked_size
from registry.blobstore.sealed.staged import SealedBytes
from tests.fault.operations import Operation, watched
from tests.fault.power_loss import Disk, materialise
from tests.fault.uploads import Plan, check_recovered, plans, read, upload
from tests.small_frames import KEY, PACKED_KEY, compressible, small_frames


class MutantStore(DiskFiles):
    """A store whose staged files lack a flush."""

    staged_type: type[StagedFile] = StagedFile

    def stage(
        self, upload_id: str, algorithm: str | None = None, data_key: DataKey | None = None
    ) -> StagedFile:
        return self.staged_type.create(self._folders, self._shared, upload_id, algorithm, data_key)

    def resume(self, upload_id: str) -> StagedFile:
        with disk_errors():
            return self.staged_type.take_up(self._folders, self._shared, upload_id)


class WithoutFileFlush(StagedFile):
    def _flush_bytes(self) -> None:
        self._file.is_durable = True


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


@pytest.fixture(params=[None, KEY, PACKED_KEY], ids=["plain", "sealed", "packed"])
def key(request: pytest.FixtureRequest) -> Iterator[DataKey | None]:
    with small_frames():
        yield request.param


@pytest.fixture
def recovery(tmp_path: Path) -> Iterator[DiskFiles]:
    with closing(DiskFiles(tmp_path / "after", compresses=True)) as store:
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


def test_no_legal_state_loses_what_was_acknowledged(
    tmp_path: Path, recovery: DiskFiles, key: DataKey | None
) -> None:
    count = 0
    with closing(DiskFiles(tmp_path / "before", compresses=True)) as store:
        for plan in (plan for seed in range(3) for plan in plans(seed, key)):
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
    tmp_path: Path, recovery: DiskFiles, mutant: type[StagedFile], key: DataKey | None
) -> None:
    plan = plans(0, key)[2]
    with closing(MutantStore(tmp_path / "before", compresses=True)) as store:
        store.staged_type = mutant
        disk = record(store, tmp_path / "before", plan)
    with pytest.raises((AssertionError, ObjectUnknown, ObjectDamaged)):
        check_every_state(disk, recovery, tmp_path / "after", plan)
    assert disk.rows.committed == {plan.upload_id}


def unpin_without_a_flush(staged: SealedBytes) -> None:
    staged._is_pinned = False


def mark_without_a_flush(staged: SealedBytes, length: int) -> None:
    staged._file.truncate(marked_size(staged._layout, staged._number, length))


def keep_nothing_apart(staged: SealedBytes) -> None:
    staged._kept = None


def store_partial_in_one_place(staged: SealedBytes, _: int, count: int) -> None:
    store_partial(staged, 1, count)


store_partial = SealedBytes._store_partial


def finish_without_a_flush(staged: SealedBytes) -> None:
    staged._unpin()
    staged._keep_apart()
    staged._store_last()
    assert staged._kept is not None
    staged._file.cut(staged._kept.end)


MUTANTS: Final = (
    ("_unpin", unpin_without_a_flush),
    ("_keep_apart", keep_nothing_apart),
    ("_store_partial", store_partial_in_one_place),
    ("_finish_frame", finish_without_a_flush),
)


@pytest.mark.parametrize(
    ("sealing_key", "method", "mutant"),
    [
        *((key, *mutant) for key in (KEY, PACKED_KEY) for mutant in MUTANTS),
        (KEY, "_mark", mark_without_a_flush),
    ],
)
def test_a_store_that_seals_over_what_was_acknowledged_is_found_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sealing_key: DataKey,
    method: str,
    mutant: Callable[..., None],
) -> None:
    rng = random.Random(5)
    data = compressible(rng, 600) if sealing_key is PACKED_KEY else rng.randbytes(600)
    plan = Plan(str(UUID(int=5)), data, (300, 30, 40, 200, 10), 100, "sha256", sealing_key)
    with (
        small_frames(),
        closing(DiskFiles(tmp_path / "before", compresses=True)) as store,
        closing(DiskFiles(tmp_path / "after", compresses=True)) as recovery,
    ):
        disk = record(store, tmp_path / "before", plan)
        check_every_state(disk, recovery, tmp_path / "after", plan)
        store.delete(plan.upload_id)
        with monkeypatch.context() as patch:
            patch.setattr(SealedBytes, method, mutant)
            disk = record(store, tmp_path / "before", plan)
        with pytest.raises((AssertionError, ObjectUnknown, ObjectDamaged)):
            check_every_state(disk, recovery, tmp_path / "after", plan)


OLD: Final = "0197a2f2-0000-7000-8000-000000000001"
NEW: Final = "0197a2f2-0000-7000-8000-000000000002"


class Crash(BaseException):
    """The process ended here."""


def test_an_object_is_never_nowhere(tmp_path: Path) -> None:
    plan = plans(0)[2]
    states = 0
    disk = Disk(tmp_path / "before")
    with closing(DiskFiles(tmp_path / "before")) as store, watched(disk):
        upload(store, plan, disk.acknowledge)
        begun = len(disk.history)
        for moment in (1, 2):
            assert store.set_aside(plan.upload_id, moment)
            assert store.take_back(plan.upload_id)
        assert store.set_aside(plan.upload_id, 3)
    with closing(DiskFiles(tmp_path / "after")) as recovery:
        for _, found in disk.history[begun:]:
            for state in found:
                materialise(state, tmp_path / "after")
                assert read(recovery, plan.upload_id) == plan.data
                assert list(recovery.list_orphans()) == []
                recovery.delete(plan.upload_id)
                states += 1
    assert states > 10


@pytest.mark.parametrize("is_after", [False, True])
def test_a_generation_is_noted_whole_or_not_at_all(tmp_path: Path, is_after: bool) -> None:
    """A process may die before or after any of its calls; the next one notes its own."""
    number = 0
    while True:
        left = number

        def step(operation: Operation) -> object:
            nonlocal left
            left -= 1
            if left == -1 and not is_after:
                raise Crash
            try:
                return operation.call()
            finally:
                if left == -1:
                    raise Crash

        root = tmp_path / str(number)
        with closing(DiskFiles(root)) as store:
            store.save_generation(OLD)
            try:
                with watched(step), disk_errors():
                    store.save_generation(NEW)
            except Crash:
                assert store.generation() in (OLD, NEW)
                store.save_generation(OLD)
                assert store.generation() == OLD
            else:
                assert store.generation() == NEW
                assert number > 4
                return
        number += 1
