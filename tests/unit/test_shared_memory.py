"""What a forked worker copies of its parent's memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from tests.databases import program_environment

# Makes many objects, then forks a child that collects garbage, and prints how many KiB of pages the
# child got of its own.
_PROGRAM: Final = """
import gc, os, sys
from cloudcore.serving.processes.supervisor import settle

def private():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))

objects = [[] for _ in range(200_000)]
if sys.argv[1] == "settled":
    settle()
reading, writing = os.pipe()
if os.fork() == 0:
    before = private()
    gc.collect()
    os.write(writing, str(private() - before).encode())
    os._exit(0)
os.wait()
print(int(os.read(reading, 20)))
"""


def test_a_collection_in_a_worker_copies_no_objects() -> None:
    assert copied_kib("settled") < 1000
    assert copied_kib("as it is") > 5000


def copied_kib(state: str) -> int:
    """Return how many KiB a child copies."""
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, state],
        env=program_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return int(ended.stdout)
