"""A disk that fills up: pushes are refused, pulls and deletes go on, and space heals all."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.staged_file import StagedFile
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from tests.fault.small_disk import free_bytes, small_disk, take_the_rest
from tests.fault.uploads import read

DISK_BYTES = 4 * 1024 * 1024
UNIT = 256 * 1024
RESERVE = DISK_BYTES // 16


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def write_all(staged: StagedFile, view: memoryview) -> None:
    for offset in range(0, len(view), UNIT):
        staged.write(view[offset : offset + UNIT])


def test_a_full_disk_refuses_writers_alone_and_heals(disk: Path) -> None:
    rng = random.Random(3)
    small, large = rng.randbytes(700_000), rng.randbytes(DISK_BYTES)
    view = memoryview(large)
    small_id, large_id, third_id = (str(uuid.uuid4()) for _ in range(3))
    with closing(DiskFiles(disk)) as store:
        with closing(store.stage(small_id)) as staged:
            staged.write(memoryview(small))
            staged.commit(digest_of(small))
        with closing(store.stage(large_id)) as staged:
            with pytest.raises(StoreUnavailable, match="full"):
                write_all(staged, view)
            assert 2 * UNIT < staged.offset < len(large) - len(small)
            with pytest.raises(StoreUnavailable, match="full"):
                staged.write(view[staged.offset :])
            digests = staged.flush()
            received = staged.offset
        assert free_bytes(disk) < RESERVE + UNIT
        take_the_rest(disk)
        assert digests["sha256"] == digest_of(large[:received])[len("sha256:") :]
        assert read(store, small_id) == small
        with pytest.raises(StoreUnavailable, match="full"), closing(store.stage(third_id)) as other:
            other.write(view[:UNIT])
        store.discard(third_id)
        store.delete(small_id)
        with closing(store.resume(large_id)) as staged:
            staged.rewind(received, digests)
            staged.write(view[received : received + 400_000])
            staged.commit(digest_of(large[: received + 400_000]))
        assert read(store, large_id) == large[: received + 400_000]
