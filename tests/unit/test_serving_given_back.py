"""Memory that malloc holds free goes back to the machine."""

from __future__ import annotations

import subprocess
import sys

CHILD = """
import ctypes, re
from cloudcore.serving.limits import give_back_unused

def anonymous():
    with open("/proc/self/status") as status:
        return int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1])

ctypes.CDLL(None).mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: no block is mapped by itself
blocks = [bytearray(b"x" * (1 << 20)) for _ in range(65)]
pin = blocks.pop()  # above them, so that free(3) cannot lower the end of the heap
del blocks
before = anonymous()
give_back_unused()
print(before - anonymous())
"""


def test_what_malloc_holds_free_is_given_back() -> None:
    given = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(given.stdout) > 32 * 1024, "KiB of 64 MiB"
