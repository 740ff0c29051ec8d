"""Stored bytes are read from the disk, whole, and the page cache stays as it was."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from registry.blobstore.disk import stored_file
from registry.blobstore.disk.disk_io import open_folder
from registry.blobstore.disk.stored_file import ColdFile, open_stored
from registry.errors import StoreUnavailable

MIB: Final = 1024 * 1024
DATA: Final = os.urandom(MIB) * 5 + b"a rest"


@pytest.fixture
def file() -> Iterator[Path]:
    """Return a file on a disk: what is in /tmp may be in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="entrepot-") as folder:
        path = Path(folder) / "object"
        path.write_bytes(DATA)
        yield path


def opened(file: Path) -> ColdFile:
    folder = open_folder(str(file.parent))
    try:
        return ColdFile(open_stored(folder, file.name, file.stat().st_size))
    finally:
        os.close(folder)


def read(file: Path, start: int = 0, stop: int | None = None) -> bytes:
    with closing(opened(file)) as stored:
        return b"".join(map(bytes, stored.chunks(start, stop)))


def forget(file: Path) -> None:
    """Let the kernel drop the file's pages; skip the test if it keeps them."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    if pages_in_memory(file):
        pytest.skip("this file system keeps its files in memory")


def pages_in_memory(file: Path) -> int:
    """Return how many pages of a file the kernel has in memory (mincore(2))."""
    library = ctypes.CDLL(None, use_errno=True)
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        found = (ctypes.c_ubyte * -(-len(DATA) // mmap.PAGESIZE))()
        size = ctypes.c_size_t(len(DATA))
        assert library.mincore(ctypes.c_void_p(ctypes.addressof(first)), size, found) == 0
        del first
    return sum(page & 1 for page in found)


RANGES: Final = [(0, None), (0, 0), (1, 2), (4095, 4097), (MIB - 1, 3 * MIB + 5), (5 * MIB, None)]


@pytest.mark.parametrize(("start", "stop"), RANGES)
@pytest.mark.parametrize("is_direct", [True, False])
def test_the_bytes_come_whole_and_in_order(
    file: Path, monkeypatch: pytest.MonkeyPatch, start: int, stop: int | None, *, is_direct: bool
) -> None:
    if not is_direct:
        monkeypatch.setattr(stored_file, "_set_direct", lambda *_args, **_options: False)
    assert read(file, start, stop) == DATA[start:stop]


def test_an_empty_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read(tmp_path / "empty") == b""


@pytest.mark.parametrize("is_direct", [True, False])
def test_what_was_not_in_memory_is_not_there_afterwards(
    file: Path, monkeypatch: pytest.MonkeyPatch, *, is_direct: bool
) -> None:
    if not is_direct:
        monkeypatch.setattr(stored_file, "_set_direct", lambda *_args, **_options: False)
    forget(file)
    assert read(file) == DATA
    assert pages_in_memory(file) == 0


def test_what_was_in_memory_stays_there_but_the_disk_is_read(file: Path) -> None:
    forget(file)
    file.read_bytes()  # a pull
    before = pages_in_memory(file)
    assert before > 1000
    assert read(file) == DATA
    assert pages_in_memory(file) == before


def test_a_disk_with_larger_blocks_is_read_through_the_page_cache(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []
    preadv = os.preadv

    def refuse_once(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if not refused:
            refused.append(offset)
            raise OSError(errno.EINVAL, "not aligned")
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", refuse_once)
    assert read(file) == DATA
    assert refused == [0]


def test_a_file_that_becomes_shorter_and_one_that_is_closed_are_errors(file: Path) -> None:
    with closing(opened(file)) as stored:
        chunks = stored.chunks()
        next(chunks)
        os.truncate(file, MIB)
        with pytest.raises(StoreUnavailable, match="shorter"):
            next(chunks)
        others = stored.chunks()
    with pytest.raises(ValueError, match="closed"):
        next(others)
