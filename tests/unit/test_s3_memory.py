"""The memory of uploads to a bucket: who waits for it, and what goes on without it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from registry.blobstore.s3 import memory
from registry.blobstore.s3.memory import MemoryBudget, PartBuffer
from registry.errors import StoreUnavailable


def test_small_uses_that_fit_do_not_overtake_a_large_one_that_waits() -> None:
    budget, order = MemoryBudget(10), list[int]()

    def use(count: int) -> None:
        with budget.taken(count):
            order.append(count)

    with ThreadPoolExecutor(2) as pool:
        with budget.taken(6):
            large = pool.submit(use, 10)
            while not budget.waiting:
                pass
            small = pool.submit(use, 1)
            while budget.waiting < 2:
                assert not small.done()
        large.result()
        small.result()
    assert order == [10, 1]
    assert (budget.used, budget.waiting) == (0, 0)


def test_without_memory_and_without_a_disk_an_upload_is_refused(tmp_path: Path) -> None:
    budget = MemoryBudget(10)
    first = PartBuffer(budget, tmp_path / "absent")
    with closing(first), closing(PartBuffer(budget, tmp_path / "absent")) as second:
        first.append(memoryview(b"12345678"))
        with pytest.raises(StoreUnavailable, match=r"disk fails \(ENOENT\)"):
            second.append(memoryview(b"123"))
        assert (len(first), len(second)) == (8, 0)
    assert budget.used == 0


def test_an_upload_leaves_other_uses_of_the_disk_their_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_SPARE_BYTES", 1 << 60)
    monkeypatch.setattr(memory, "_SPARE_SHARE", 1)  # no disk has all of its room free
    with closing(PartBuffer(MemoryBudget(10), tmp_path)) as buffer:
        buffer.append(memoryview(b"12345678"))
        with pytest.raises(StoreUnavailable, match=r"disk fails \(ENOSPC\)"):
            buffer.append(memoryview(b"123"))
        assert buffer.read(0, 8) == b"12345678"
