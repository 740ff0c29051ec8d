"""Measure whether the time of a push reveals that another repository has the same bytes.

    python -m benchmarks.dedup_oracle

Bytes are stored once per account, so pushing a blob of another repository stores less. Push blobs
of another repository and new blobs in turn, each once, and compare the medians. Exit with 1 if they
differ by more than `SHARE` and by more than `MILLISECONDS`.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

from benchmarks.servers import ROOT, free_port

PUSHES: Final = 2_000
"""Number of pushes of each size; half of them are of blobs that another repository has."""
SIZES: Final = (4 * 1024, 256 * 1024)
SHARE: Final = 0.05
MILLISECONDS: Final = 1.0
READY_SECONDS: Final = 20
_BLOCK: Final = 1 << 10


class Pusher:
    """A connection to a registry, and a source of unique blobs."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._random = random.Random(17)

    def blob(self, size: int) -> bytes:
        """Return a new unique blob of `size` bytes."""
        return self._random.randbytes(_BLOCK) + bytes(size - _BLOCK)

    def push(self, repository: str, data: bytes) -> float:
        """Push a blob in one request; return the milliseconds until the answer."""
        digest = hashlib.sha256(data).hexdigest()
        path = f"/v2/dev/{repository}/blobs/uploads/?digest=sha256:{digest}"
        begun = time.perf_counter()
        self._connection.request("POST", path, data)
        answer = self._connection.getresponse()
        answer.read()
        taken = time.perf_counter() - begun
        if answer.status != 201:
            raise RuntimeError(f"POST: {answer.status}")
        return taken * 1000


def start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start a registry; return its process when it is ready."""
    command = [sys.executable, "-m", "registry", "dev", "--port", str(port), "--data", str(folder)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(READY_SECONDS * 10):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=1):
                return process
        except OSError:
            time.sleep(0.1)
    process.terminate()
    raise RuntimeError("the registry did not start")


def compare(pusher: Pusher, size: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of pushes of blobs that another repository has, and of new blobs."""
    held = [pusher.blob(size) for _ in range(PUSHES // 2)]
    for data in held:
        pusher.push("elsewhere", data)
    known: list[float] = []
    new: list[float] = []
    for number, data in enumerate(held):
        turns = [(known, data), (new, pusher.blob(size))]
        for taken, body in turns if number % 2 else turns[::-1]:
            taken.append(pusher.push("here", body))
    return known, new


def is_silent(known: list[float], new: list[float]) -> bool:
    """Print the results of one size; return True if the difference is within the limits."""
    medians = statistics.median(known), statistics.median(new)
    gap = medians[0] - medians[1]
    share = abs(gap) / medians[1]
    quartiles = [statistics.quantiles(each, n=4) for each in (known, new)]
    for name, (low, middle, high) in zip(("held elsewhere", "new"), quartiles, strict=True):
        print(f"  {name:15} median {middle:7.3f} ms, quartiles {low:7.3f} to {high:7.3f} ms")
    print(f"  gap {gap:+.3f} ms ({gap / medians[1]:+.1%})")
    return share < SHARE or abs(gap) < MILLISECONDS


def main() -> int:
    """Measure and print; return 0 if the goal is met, else 1."""
    with tempfile.TemporaryDirectory() as folder:
        process = start(Path(folder), port := free_port())
        try:
            pusher, silent = Pusher(port), True
            for size in SIZES:
                print(f"{size // 1024} KiB, {PUSHES} pushes:")
                silent = is_silent(*compare(pusher, size)) and silent
        finally:
            process.terminate()
            process.wait()
    print(f"goal: a gap under {SHARE:.0%} or {MILLISECONDS} ms: {'kept' if silent else 'MISSED'}")
    return 0 if silent else 1


if __name__ == "__main__":
    sys.exit(main())
