"""Readers of one object at the same time share its decrypted frames, and nothing else."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import uuid7
from registry.blobstore.base import DataKey, ObjectChanged
from registry.blobstore.disk_files import DiskFiles
from registry.blobstore.sealed_format import FRAME_BYTES, FrameCipher
from registry.blobstore.sealed_object import SealedObject
from registry.blobstore.shared_frames import SharedFrames
from registry.oci.digest import digest_of

KEY: Final = DataKey(bytes(32), b"acme")
HEADER: Final = b"an object"
FRAMES: Final = 6
DATA: Final = os.urandom(FRAMES * FRAME_BYTES + 5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskFiles]:
    """Return a store on disk."""
    for name in ("objects", "uploads", "orphans", "quarantine"):
        (tmp_path / name).mkdir(exist_ok=True)
    files = DiskFiles(tmp_path)
    yield files
    files.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of the frames that are decrypted from now on."""
    numbers: list[int] = []
    decrypt = FrameCipher.open

    def count(self: FrameCipher, *given: object) -> memoryview:
        numbers.append(given[1])  # type: ignore[arg-type]
        return decrypt(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(FrameCipher, "open", count)
    return numbers


def push(store: DiskFiles, data: bytes) -> str:
    """Store an object; return its id."""
    object_id = uuid7()
    staged = store.stage(object_id, None, KEY)
    staged.write(memoryview(data))
    staged.commit(digest_of(data))
    staged.close()
    return object_id


def reader(store: DiskFiles, object_id: str) -> SealedObject:
    """Open an object."""
    found = store.open(object_id, len(DATA), KEY)
    assert isinstance(found, SealedObject)
    return found


def test_readers_in_step_decrypt_each_frame_once(store: DiskFiles, opened: list[int]) -> None:
    object_id = push(store, DATA)
    opened.clear()
    readers = [reader(store, object_id).chunks() for _ in range(5)]
    parts: list[list[bytes]] = [[] for _ in readers]
    firsts = [next(each) for each in readers]  # all are there, the first one alone until now
    for part, first in zip(parts, firsts, strict=True):
        part.append(bytes(first))
    for _ in range(FRAMES):
        for part, each in zip(parts, readers, strict=True):
            part.append(bytes(next(each)))
    assert all(b"".join(part) == DATA for part in parts)
    assert sorted(opened) == sorted([0, *range(FRAMES + 1)])


def test_a_reader_alone_keeps_nothing(store: DiskFiles, opened: list[int]) -> None:
    object_id = push(store, DATA)
    opened.clear()
    for _ in range(2):
        assert b"".join(bytes(part) for part in reader(store, object_id).chunks()) == DATA
    assert sorted(opened) == sorted([*range(FRAMES + 1)] * 2)


def test_readers_of_other_ranges_share_nothing(store: DiskFiles, opened: list[int]) -> None:
    object_id = push(store, DATA)
    opened.clear()
    low = reader(store, object_id).chunks(0, 2 * FRAME_BYTES)
    high = reader(store, object_id).chunks(2 * FRAME_BYTES, 4 * FRAME_BYTES)
    found = [bytes(part) for pair in zip(low, high, strict=True) for part in pair]
    assert b"".join(found[::2] + found[1::2]) == DATA[: 4 * FRAME_BYTES]
    assert not store._frames._frames


@pytest.mark.parametrize("most", [0, 1, 2, 32])
def test_readers_at_their_own_pace_get_their_bytes(store: DiskFiles, most: int) -> None:
    """With little room, some decrypt for themselves; when all have ended, nothing is kept."""
    store._frames = SharedFrames(most)
    object_id = push(store, DATA)

    def read(start: int) -> bool:
        chunks = reader(store, object_id).chunks(start)
        return b"".join(bytes(part) for part in chunks) == DATA[start:]

    starts = [0, 0, 0, 17, FRAME_BYTES - 1, FRAME_BYTES, 3 * FRAME_BYTES + 1, len(DATA) - 1] * 4
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, starts))
    assert not store._frames._frames
    assert not store._frames._readers


def test_a_reader_that_stops_in_the_middle_holds_no_frame(store: DiskFiles) -> None:
    object_id = push(store, DATA)
    first, second = (reader(store, object_id).chunks() for _ in range(2))
    next(first)
    next(second)
    next(second)
    second.close()  # type: ignore[attr-defined]
    assert not any(frame.users for frame in store._frames._frames.values())
    first.close()  # type: ignore[attr-defined]
    assert not store._frames._frames


def test_a_slow_reader_keeps_the_bytes_it_was_given(store: DiskFiles) -> None:
    """Others need its room meanwhile, and decrypt for themselves."""
    store._frames = SharedFrames(1)
    object_id = push(store, DATA)
    quick, slow = (reader(store, object_id).chunks() for _ in range(2))
    next(quick)
    next(slow)
    next(quick)
    held = next(slow)
    seen = bytes(held)
    rest = b"".join(bytes(part) for part in quick)
    assert rest == DATA[2 * FRAME_BYTES :]
    assert bytes(held) == seen == DATA[FRAME_BYTES : 2 * FRAME_BYTES]


def test_every_reader_is_refused_a_changed_frame(store: DiskFiles, tmp_path: Path) -> None:
    object_id = push(store, DATA)
    (file,) = (tmp_path / "objects").glob(f"*/{object_id}")
    changed = bytearray(file.read_bytes())
    changed[2 * FRAME_BYTES] ^= 1
    file.write_bytes(changed)
    readers = [reader(store, object_id).chunks() for _ in range(3)]
    for each in readers:
        next(each)
    for each in readers:
        with pytest.raises(ObjectChanged):
            next(each)
    assert not store._frames._frames


def test_who_waits_for_a_frame_that_fails_decrypts_it_itself() -> None:
    frames = SharedFrames()
    waits, fails = threading.Event(), threading.Event()

    def fail(_out: memoryview) -> memoryview:
        waits.set()
        fails.wait()
        raise ObjectChanged("changed")

    def first() -> None:
        with frames.reading(HEADER, 0, 2) as one, pytest.raises(ObjectChanged), one.frame(0, fail):
            pass

    def second() -> memoryview | None:
        with frames.reading(HEADER, 0, 2) as two:
            begun.set()
            waits.wait()
            with two.frame(0, _never) as found:
                return found

    begun = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        other = threads.submit(second)
        begun.wait()
        one = threads.submit(first)
        waits.wait()
        while not any(frame.users > 1 for frame in frames._frames.values()):
            os.sched_yield()
        fails.set()
        assert other.result() is None
        one.result()


def _never(_out: memoryview) -> memoryview:
    raise AssertionError("another reader decrypts it")
