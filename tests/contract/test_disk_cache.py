"""The cache of stored objects on a machine's disk: what it gives is right, or it gives nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.blobstore.disk.stored_file import StoredFile
from registry.blobstore.reading import StoredBytes
from registry.blobstore.s3.disk_cache import FETCHING, DiskCache
from registry.counters import CACHE_EVICTED
from tests.waiting import until

MIB = 1 << 20
ID = "0197f0aa-0000-7000-8000-0000000000ab"


class Source:
    """Objects in files, as a bucket has them; it counts who opens them and can be slow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened = 0
        self.gate = threading.Event()
        self.gate.set()

    def put(self, object_id: str, body: bytes) -> None:
        (self.folder / object_id).write_bytes(body)

    def open(self, object_id: str) -> StoredBytes:
        self.opened += 1
        descriptor = os.open(self.folder / object_id, os.O_RDONLY)
        return Slow(descriptor, os.fstat(descriptor).st_size, self.gate)


class Slow(StoredFile):
    """A file of which no byte after the first MiB is read in order before the gate opens."""

    def __init__(self, descriptor: int, length: int, gate: threading.Event) -> None:
        super().__init__(descriptor, length)
        self.gate = gate

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        seen = 0
        for chunk in super().chunks(start, stop):
            if seen >= MIB:
                self.gate.wait()
            seen += len(chunk)
            yield chunk


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "source").mkdir()
    return Source(tmp_path / "source")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[DiskCache]:
    with contextlib.closing(DiskCache(tmp_path / "cache", 256 * MIB)) as made:
        yield made


def read(cache: DiskCache, source: Source, object_id: str = ID) -> bytes:
    """Read an object through the cache, as a store does."""
    with contextlib.closing(opened(cache, source, object_id)) as stored:
        return b"".join(bytes(each) for each in stored.chunks())


def opened(cache: DiskCache, source: Source, object_id: str = ID) -> StoredBytes:
    found = cache.open(object_id)
    if found is not None:
        return found
    return cache.kept(object_id, source.open(object_id), lambda: source.open(object_id))


def files(folder: Path) -> set[str]:
    return {each.name for each in folder.glob("??/*")}


def cached(tmp_path: Path, object_id: str = ID) -> Path:
    return tmp_path / "cache" / object_id[-2:] / object_id


@pytest.mark.parametrize("length", [0, 1, 256 * 1024, 3 * MIB + 17])
def test_an_object_is_fetched_once_and_then_read_from_the_disk(
    tmp_path: Path, cache: DiskCache, source: Source, length: int
) -> None:
    body = os.urandom(length)
    source.put(ID, body)
    assert read(cache, source) == body
    until(cached(tmp_path).exists)
    assert [read(cache, source) for _ in range(3)] == [body] * 3
    assert source.opened == 1
    with contextlib.closing(opened(cache, source)) as stored:
        region = stored.file_region(0, length)
        assert region is not None
        assert os.pread(region.descriptor, length, region.offset) == body
        assert stored.length == length


def test_readers_follow_the_one_that_fetches_in_whatever_process(
    tmp_path: Path, cache: DiskCache, source: Source
) -> None:
    body = os.urandom(4 * MIB)
    source.put(ID, body)
    source.gate.clear()
    with contextlib.closing(DiskCache(tmp_path / "cache", 256 * MIB)) as another:
        readers = [opened(each, source) for each in (cache, another, cache)]
        view = memoryview(bytearray(MIB))
        for each in readers:
            assert each.read_into(view, 0)
            assert view == body[:MIB]
            assert not each.read_into(view, 2 * MIB, wait=False)
            assert not each.read_into(view, 4 * MIB - 1)
        source.gate.set()
        for each in readers:
            assert b"".join(map(bytes, each.chunks(MIB, 4 * MIB))) == body[MIB:]
            each.close()
    # Each opened it to learn its length; nobody but the first read it.
    assert source.opened == 3


@given(st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 300_000)), max_size=8))
def test_any_range_is_right_while_it_is_fetched_and_after(
    tmp_path_factory: pytest.TempPathFactory, ranges: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("ranges")
    (folder / "source").mkdir()
    source = Source(folder / "source")
    body = os.urandom(300_000)
    source.put(ID, body)
    with contextlib.closing(DiskCache(folder / "cache", 256 * MIB)) as cache:
        for start, stop in ranges:
            low, high = min(start, stop), max(start, stop)
            with contextlib.closing(opened(cache, source)) as stored:
                assert b"".join(map(bytes, stored.chunks(low, high))) == body[low:high]


def test_a_reader_goes_on_when_the_process_that_fetches_is_killed(
    tmp_path: Path, cache: DiskCache, source: Source
) -> None:
    body = os.urandom(3 * MIB)
    source.put(ID, body)
    program = (
        "import os, sys, threading\n"
        "from pathlib import Path\n"
        "from registry.blobstore.s3.disk_cache import DiskCache\n"
        "from registry.blobstore.disk.stored_file import StoredFile\n"
        "class Stuck(StoredFile):\n"
        "    def chunks(self, start=0, stop=None):\n"
        "        yield next(iter(super().chunks(start, stop)))\n"
        "        print('fetching', flush=True)\n"
        "        threading.Event().wait()\n"
        "folder, source, name = sys.argv[1:]\n"
        "descriptor = os.open(source, os.O_RDONLY)\n"
        "stored = Stuck(descriptor, os.fstat(descriptor).st_size)\n"
        "DiskCache(Path(folder), 1 << 28).kept(name, stored, lambda: stored)\n"
    )
    place = [str(tmp_path / "cache"), str(source.folder / ID), ID]
    fetching = subprocess.Popen([sys.executable, "-c", program, *place], stdout=subprocess.PIPE)
    with fetching:
        assert fetching.stdout is not None
        assert fetching.stdout.readline() == b"fetching\n"
        with contextlib.closing(opened(cache, source)) as stored:
            chunks = stored.chunks()
            first = bytes(next(chunks))
            os.kill(fetching.pid, signal.SIGKILL)
            assert first + b"".join(map(bytes, chunks)) == body
    assert not cached(tmp_path).exists()
    assert read(cache, source) == body  # and fetches it, in the place of the dead
    until(cached(tmp_path).exists)
    assert not [*(tmp_path / "cache" / FETCHING).iterdir()]


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "grow"])
def test_a_file_with_other_bytes_is_not_given(
    tmp_path: Path, cache: DiskCache, source: Source, harm: str
) -> None:
    body = os.urandom(MIB)
    source.put(ID, body)
    read(cache, source)
    until(cached(tmp_path).exists)
    file = cached(tmp_path)
    stored = bytearray(file.read_bytes())
    if harm == "flip":
        stored[MIB // 2] ^= 1
    changes = {"cut": stored[: MIB // 2], "empty": bytearray(), "grow": stored + b"x"}
    changed = changes.get(harm, stored)
    file.write_bytes(changed)
    with contextlib.closing(DiskCache(tmp_path / "cache", 256 * MIB)) as another:
        assert another.open(ID) is None  # as after a crash
        assert not file.exists()
        assert read(another, source) == body


def test_what_a_dead_process_has_left_is_not_followed_and_goes(
    tmp_path: Path, cache: DiskCache, source: Source
) -> None:
    """Its size may be there without its bytes, after a power loss."""
    body = os.urandom(MIB)
    left = tmp_path / "cache" / FETCHING / ID
    left.write_bytes(bytes(MIB))
    source.put(ID, body)
    source.gate.clear()
    busy = [f"{number:032x}" for number in range(8)]
    try:
        for each in busy:  # as many as a process fetches at once
            source.put(each, bytes(3 * MIB))
            opened(cache, source, each).close()
        assert read(cache, source) == body
    finally:
        source.gate.set()
    long_ago = time.time() - 3600
    os.utime(left, (long_ago, long_ago))
    with contextlib.closing(DiskCache(tmp_path / "cache", 256 * MIB)) as another:
        assert another.open(ID) is None  # it looks at the folder then
        until(lambda: not left.exists())


def test_what_was_not_used_for_longest_goes(tmp_path: Path, source: Source) -> None:
    evicted: list[int] = []

    def count(key: str, amount: int) -> None:
        if key == CACHE_EVICTED:
            evicted.append(amount)

    with contextlib.closing(DiskCache(tmp_path / "cache", 8 * MIB, count)) as cache:
        ids = [f"{number:032x}" for number in range(24)]
        for number, each in enumerate(ids):
            source.put(each, os.urandom(MIB))
            read(cache, source, each)
            until(cached(tmp_path, each).exists)
            moment = time.time() - 3600 + number
            os.utime(cached(tmp_path, each), (moment, moment))
            assert len(files(tmp_path / "cache")) <= 9
        assert set(ids[-4:]) <= files(tmp_path / "cache")
        assert len(evicted) == len(ids) - len(files(tmp_path / "cache"))
        assert set(evicted) == {cached(tmp_path, ids[-1]).stat().st_size}
        with contextlib.closing(cache.open(ids[-1]) or pytest.fail("it is gone")):
            assert cached(tmp_path, ids[-1]).stat().st_mtime > time.time() - 60
        source.put(ID, bytes(3 * MIB))  # more than a quarter of all
        assert read(cache, source) == bytes(3 * MIB)
    assert ID not in files(tmp_path / "cache")


def test_what_nobody_reads_for_a_week_goes(
    tmp_path: Path, cache: DiskCache, source: Source
) -> None:
    """Another machine may have deleted it."""
    for each in ("kept", "left", "next"):
        source.put(each, b"body")
    for each in ("kept", "left"):
        read(cache, source, each)
        until(cached(tmp_path, each).exists)
    long_ago = time.time() - 8 * 86400
    os.utime(cached(tmp_path, "left"), (long_ago, long_ago))
    with contextlib.closing(DiskCache(tmp_path / "cache", 256 * MIB)) as another:
        read(another, source, "next")
        until(cached(tmp_path, "next").exists)
    assert files(tmp_path / "cache") == {"kept", "next"}


def test_reads_go_on_without_the_cache(
    tmp_path: Path, cache: DiskCache, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    body = os.urandom(MIB)
    source.put(ID, body)
    (tmp_path / "cache" / FETCHING).rmdir()
    (tmp_path / "cache" / FETCHING).write_text("in the way")
    assert [read(cache, source) for _ in range(3)] == [body] * 3
    assert [each.message for each in caplog.records] == [
        "the cache cannot be filled: Not a directory"
    ]
