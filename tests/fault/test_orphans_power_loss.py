"""Every state a power loss may leave while an object is set aside and taken back: it is there."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from registry.blobstore.disk.disk_io import disk_errors
from registry.blobstore.disk.files import DiskFiles
from tests.fault.operations import Operation, watched
from tests.fault.power_loss import Disk, materialise
from tests.fault.uploads import plans, read, upload

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
            store.note_generation(OLD)
            try:
                with watched(step), disk_errors():
                    store.note_generation(NEW)
            except Crash:
                assert store.generation() in (OLD, NEW)
                store.note_generation(OLD)
                assert store.generation() == OLD
            else:
                assert store.generation() == NEW
                assert number > 4
                return
        number += 1
