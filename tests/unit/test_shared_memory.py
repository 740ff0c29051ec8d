"""What a forked worker copies of its parent's memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.databases import program_environment

# Leaves a hole of `size` bytes in each of thousands of pages, then forks a child that makes 200 KiB
# of objects, and prints how many KiB of pages the child got of its own.
_PROGRAM = """
import gc, os, sys
from cloudcore.serving.shared_memory import settle

def private():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))

def fork(act):
    reading, writing = os.pipe()
    if os.fork() == 0:
        before = private()
        kept = act()
        os.write(writing, str(private() - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reading, 20))

size = int(sys.argv[1])
count = (16 << 20) // size
objects = [bytes(size - 33) for _ in range(count)]
stride = max(1, 4096 // size)
for index in range(0, count, stride):
    objects[index] = None
if sys.argv[2] == "settled":
    settle()
print(fork(lambda: [bytes(size - 33) for _ in range((200 << 10) // size)]))
"""


@pytest.mark.parametrize("size", [64, 224, 512, 800, 2000])
def test_new_objects_of_a_worker_fill_no_holes_in_shared_pages(size: int) -> None:
    assert 200 <= copied_kib(size, "settled") < 1000


def test_holes_cost_a_worker_much_more_if_they_are_not_filled() -> None:
    assert copied_kib(224, "as it is") > 2000


def test_a_collection_in_a_worker_copies_no_objects() -> None:
    program = _PROGRAM.rpartition("print(")[0]
    program += "objects = [[] for _ in range(200_000)]\n"
    program += "settle() if sys.argv[2] == 'settled' else None\nprint(fork(gc.collect))"
    assert copied_kib(224, "settled", program) < 1000
    assert copied_kib(224, "as it is", program) > 5000


@pytest.mark.parametrize("allocator", ["malloc", "pymalloc_debug"])
def test_other_allocators_are_left_as_they_are(allocator: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from cloudcore.serving.shared_memory import settle; settle()"],
        env=program_environment() | {"PYTHONMALLOC": allocator},
        timeout=20,
        check=False,
    )
    assert ended.returncode == 0


def copied_kib(size: int, *arguments: str) -> int:
    """Return how many KiB a child copies; the last argument may be another program."""
    state, *other = arguments
    ended = subprocess.run(
        [sys.executable, "-c", other[0] if other else _PROGRAM, str(size), state],
        env=program_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return int(ended.stdout)
