"""Frames that several clients read at once are decrypted once, and only right ones are shared."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from registry.blobstore.base import ObjectChanged
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.folders import object_path
from registry.blobstore.sealed.frame_format import FRAME_BYTES, SealBroken, frame_offset
from registry.blobstore.sealed.shared_frames import FrameReader, SharedFrames
from registry.oci.digest import digest_of
from tests.small_frames import KEY

SEAL: Final = b"the header of an object"
DATA: Final = random.Random(8).randbytes(3 * FRAME_BYTES + 77)


class Frames:
    """Frames that tell their number, and which of them were made."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.broken: set[int] = set()

    def make(self, number: int, out: memoryview) -> memoryview:
        self.made.append(number)
        if number in self.broken:
            raise SealBroken("a frame")
        out[:4] = number.to_bytes(4, "big")
        return out[:4]

    def read(self, reader: FrameReader, *numbers: int) -> None:
        for number in numbers:
            assert reader.frame(number, self.make) == number.to_bytes(4, "big")


@pytest.fixture
def readers() -> Iterator[ExitStack]:
    """Give what the readers of a test enter."""
    with ExitStack() as stack:
        yield stack


def test_readers_near_each_other_share_every_frame(readers: ExitStack) -> None:
    shared, frames = SharedFrames(), Frames()
    three = [readers.enter_context(shared.reading(SEAL, 0, 40)) for _ in range(3)]
    for number in range(0, 40, 4):
        for reader in three:
            frames.read(reader, *range(number, number + 4))
            assert shared.kept <= 5
    assert frames.made == list(range(40))
    assert shared.kept == 1, "each holds the last one until it ends"
    readers.close()
    assert not shared.kept


@pytest.mark.parametrize(
    ("seal", "first", "end"), [(SEAL, 8, 16), (SEAL, 0, 4), (b"of another", 0, 16)]
)
def test_what_nobody_comes_to_is_not_kept(
    readers: ExitStack, seal: bytes, first: int, end: int
) -> None:
    shared, frames = SharedFrames(), Frames()
    readers.enter_context(shared.reading(seal, first, end))
    reader = readers.enter_context(shared.reading(SEAL, 4, 8))
    frames.read(reader, *range(4, 8))
    assert not shared.kept


def test_who_is_far_behind_keeps_nothing(readers: ExitStack) -> None:
    shared, frames = SharedFrames(limit=4), Frames()
    readers.enter_context(shared.reading(SEAL, 0, 100))
    ahead = readers.enter_context(shared.reading(SEAL, 0, 100))
    frames.read(ahead, *range(4))
    assert shared.kept == 4
    frames.read(ahead, *range(4, 100))
    assert shared.kept == 4


def test_the_number_of_frames_is_bounded_and_the_oldest_make_room(readers: ExitStack) -> None:
    shared, frames = SharedFrames(limit=3), Frames()
    for seal in (b"a", b"b"):
        readers.enter_context(shared.reading(seal, 0, 9))
        frames.read(readers.enter_context(shared.reading(seal, 0, 9)), 0, 1)
        assert shared.kept <= 3
    frames.made.clear()
    frames.read(readers.enter_context(shared.reading(b"b", 0, 9)), 0, 1)
    assert frames.made == []
    frames.read(readers.enter_context(shared.reading(b"a", 0, 9)), 1, 0)
    assert frames.made == [0]


def test_frames_in_use_are_not_taken_away(readers: ExitStack) -> None:
    shared, frames = SharedFrames(limit=1), Frames()
    one, other = (readers.enter_context(shared.reading(SEAL, 0, 9)) for _ in range(2))
    held = one.frame(0, frames.make)
    frames.read(other, 0, 1, 2)
    assert held == bytes(4)
    assert frames.made == [0, 1, 2]


def test_a_frame_that_does_not_open_is_refused_to_each_and_never_kept(readers: ExitStack) -> None:
    shared, frames = SharedFrames(), Frames()
    frames.broken = {1}
    both = [readers.enter_context(shared.reading(SEAL, 0, 9)) for _ in range(2)]
    for reader in both:
        frames.read(reader, 0)
        with pytest.raises(SealBroken):
            frames.read(reader, 1)
        assert not any(number == 1 for _, number in shared._slots)
    assert frames.made == [0, 1, 1]


def test_with_the_last_reader_the_memory_goes() -> None:
    shared, frames = SharedFrames(), Frames()
    with shared.reading(SEAL, 0, 9), shared.reading(SEAL, 0, 9) as reader:
        frames.read(reader, 0, 1)
        assert shared.kept == 2
    assert not shared.kept
    assert not shared._spare
    assert not shared._readers


def test_who_comes_while_a_frame_is_decrypted_waits_for_it(readers: ExitStack) -> None:
    shared, frames = SharedFrames(), Frames()
    first, second = (readers.enter_context(shared.reading(SEAL, 0, 9)) for _ in range(2))
    entered, go_on = threading.Event(), threading.Event()

    def slowly(number: int, out: memoryview) -> memoryview:
        entered.set()
        assert go_on.wait(60)
        return frames.make(number, out)

    def read_first() -> None:
        assert first.frame(0, slowly) == bytes(4)

    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(read_first)
        assert entered.wait(60)
        waiting = pool.submit(frames.read, second, 0)
        go_on.set()
        running.result(20)
        waiting.result(20)
    assert frames.made == [0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[DiskFiles, str, Path]]:
    """Give a store, the id of a sealed object of `DATA`, and the path of its file."""
    with closing(DiskFiles(tmp_path)) as files:
        staged = files.stage(str(uuid4()), None, KEY)
        staged.write(memoryview(DATA))
        object_id = staged.commit(digest_of(DATA)).object_id
        staged.close()
        yield files, object_id, tmp_path / "objects" / object_path(object_id)


def test_only_shared_chunks_spare_a_look_at_the_disk(store: tuple[DiskFiles, str, Path]) -> None:
    files, object_id, path = store
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(closing(files.open(object_id, len(DATA), KEY))) for _ in range(2)
        )
        following = second.shared_chunks()
        assert bytes(next(following)) == DATA[:FRAME_BYTES]
        leading = first.shared_chunks()
        got = [bytes(next(leading)) for _ in range(2)]
        with path.open("r+b") as file:
            file.seek(frame_offset(1) + 100)
            file.write(b"damaged")
        assert bytes(next(following)) == DATA[FRAME_BYTES : 2 * FRAME_BYTES] == got[1]
        with pytest.raises(ObjectChanged):
            next(first.chunks(FRAME_BYTES))
        assert bytes(next(leading)) == bytes(next(following))  # nobody needs the other frame now
        with pytest.raises(ObjectChanged):
            next(first.shared_chunks(FRAME_BYTES))


def test_many_readers_of_any_ranges_get_their_bytes(store: tuple[DiskFiles, str, Path]) -> None:
    files, object_id, _ = store
    files._frames = SharedFrames(limit=2)
    draw = random.Random(3)
    ranges = [sorted(draw.sample(range(len(DATA) + 1), 2)) for _ in range(24)]
    ranges += [[0, len(DATA)]] * 12

    def read(start: int, stop: int) -> bool:
        with closing(files.open(object_id, len(DATA), KEY)) as found:
            return b"".join(map(bytes, found.shared_chunks(start, stop))) == DATA[start:stop]

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(lambda each: read(*each), ranges))
    assert not files._frames.kept
