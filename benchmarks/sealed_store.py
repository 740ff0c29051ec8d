"""Measure the blob store alone, plain beside sealed and compressed: rate and processor time.

    python -m benchmarks.sealed_store                       # 256 MiB, in a temporary folder
    python -m benchmarks.sealed_store --data /dev/shm       # without the disk
    python -m benchmarks.sealed_store --content layer.tar   # bytes that can be compressed

Large objects are written in units of 256 KiB, as a server does, flushed and committed; then read
whole, and in ranges of 64 KiB. Small ones of 4 KiB are staged and committed, then opened and read.
"compressed" is sealed by a store that compresses what it can; of random bytes, that is nothing.
All take turns; the values are medians of the rounds.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

from registry.blobstore.base import DataKey
from registry.blobstore.disk.files import DiskFiles
from registry.oci.digest import Digest, digest_of

MIB: Final = 1024 * 1024
UNIT: Final = 256 * 1024
SMALL: Final = 4 * 1024
SMALL_COUNT: Final = 200
RANGE: Final = 64 * 1024
RANGE_COUNT: Final = 200


class Measured(NamedTuple):
    """One run of an operation."""

    seconds: float
    cpu_seconds: float
    amount: float
    """Units of work: 10⁶ bytes, or operations."""


class Bench:
    """Operations on one store."""

    def __init__(self, folder: Path, data: bytes, *, compresses: bool) -> None:
        self._store = DiskFiles(folder, compresses=compresses)
        self._data = memoryview(data)
        self._digest = digest_of(data)
        self._small = random.Random(9).randbytes(SMALL)
        self._large = ""

    @property
    def stored_share(self) -> float:
        """Return the size on disk of the large object, as a part of its own."""
        sizes = {each.object_id: each.stored_size for each in self._store.list_objects()}
        return sizes[self._large] / len(self._data)

    def close(self) -> None:
        """Release the store."""
        self._store.close()

    def operations(self) -> dict[str, Callable[[DataKey | None], float]]:
        """Return what is measured, by its name."""
        return {
            "write, MB/s": self.write,
            "read, MB/s": self.read,
            "ranges of 64 KiB/s": self.ranges,
            "write 4 KiB/s": self.write_small,
            "read 4 KiB/s": self.read_small,
        }

    def write(self, key: DataKey | None) -> float:
        """Write a large object; return its size in 10⁶ bytes."""
        if self._large:
            self._store.delete(self._large)
        self._large = self._put(self._data, self._digest, key)
        return len(self._data) / 1e6

    def read(self, key: DataKey | None) -> float:
        """Read the large object; return its size in 10⁶ bytes."""
        with closing(self._store.open(self._large, len(self._data), key)) as stored:
            count = sum(len(chunk) for chunk in stored.chunks())
        return count / 1e6

    def ranges(self, key: DataKey | None) -> float:
        """Read ranges of the large object; return how many."""
        rng = random.Random(3)
        with closing(self._store.open(self._large, len(self._data), key)) as stored:
            for _ in range(RANGE_COUNT):
                start = rng.randrange(len(self._data) - RANGE)
                for chunk in stored.chunks(start, start + RANGE):
                    assert chunk
        return RANGE_COUNT

    def write_small(self, key: DataKey | None) -> float:
        """Write small objects; return how many."""
        digest = digest_of(self._small)
        for _ in range(SMALL_COUNT):
            self._store.delete(self._put(memoryview(self._small), digest, key))
        return SMALL_COUNT

    def read_small(self, key: DataKey | None) -> float:
        """Open and read a small object again and again; return how many times."""
        object_id = self._put(memoryview(self._small), digest_of(self._small), key)
        for _ in range(SMALL_COUNT * 10):
            with closing(self._store.open(object_id, SMALL, key)) as stored:
                assert sum(map(len, stored.chunks())) == SMALL
        self._store.delete(object_id)
        return SMALL_COUNT * 10

    def _put(self, data: memoryview, digest: Digest, key: DataKey | None) -> str:
        object_id = str(uuid.uuid4())
        with closing(self._store.stage(object_id, None, key)) as staged:
            for offset in range(0, len(data), UNIT):
                staged.write(data[offset : offset + UNIT])
            staged.commit(digest)
        return object_id


def measure(operation: Callable[[DataKey | None], float], key: DataKey | None) -> Measured:
    """Run an operation once."""
    cpu, begun = time.process_time(), time.perf_counter()
    amount = operation(key)
    return Measured(time.perf_counter() - begun, time.process_time() - cpu, amount)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table of medians; return 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sealed_store", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder to work in (default: a temporary one)")
    parser.add_argument("--mebibytes", type=int, default=256, help="size of the large object")
    parser.add_argument("--content", type=Path, help="file of the large object's bytes")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    size = options.mebibytes * MIB
    data = random.Random(8).randbytes(size)
    if options.content:
        with options.content.open("rb") as file:
            data = file.read(size)
    key = DataKey(os.urandom(32), b"an account")
    keys = {"plain": None, "sealed": key, "compressed": key}
    runs: dict[tuple[str, str], list[Measured]] = {}
    shares: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=options.data) as folder, ExitStack() as stack:
        benches = {
            name: stack.enter_context(
                closing(Bench(Path(folder) / name, data, compresses=name == "compressed"))
            )
            for name in keys
        }
        for _ in range(options.rounds):
            for encoding, bench in benches.items():
                for name, operation in bench.operations().items():
                    found = measure(operation, keys[encoding])
                    runs.setdefault((name, encoding), []).append(found)
        shares = {name: bench.stored_share for name, bench in benches.items()}
    line = "{:<22}{:<12}{:>10}{:>16}\n"
    sys.stdout.write(line.format("", "", "rate", "CPU s / 1,000"))
    for (name, encoding), every in sorted(runs.items()):
        rate = statistics.median(each.amount / each.seconds for each in every)
        cpu = statistics.median(each.cpu_seconds / each.amount for each in every)
        sys.stdout.write(line.format(name, encoding, f"{rate:,.0f}", f"{cpu * 1000:.3f}"))
    for encoding, share in shares.items():
        sys.stdout.write(f"{'size on disk':<22}{encoding:<12}{share:>10.3f}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
