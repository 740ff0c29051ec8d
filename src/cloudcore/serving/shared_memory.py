"""Keep the memory of a server small: few arenas, and pages that workers share with their parent.

A page of a forked worker stays shared until a process writes to it; then the process gets a copy.
Without `settle`, a worker soon copies most of what it was given: its garbage collector writes to
the head of each object.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_M_ARENA_MAX: Final = -8
"""mallopt(3)."""
_ARENAS: Final = 2
_MAPPINGS: Final = Path("/proc/self/smaps")
_MAPPING: Final = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+)")
_UNWRITTEN: Final = re.compile(rb"Anonymous: +0 kB")


def limit_arenas() -> None:
    """Let all threads share two arenas of malloc; call it before the first thread starts.

    Otherwise each thread gets one, up to eight for each processor, and what one has freed in its
    own, others cannot use. The interpreter's lock leaves little to wait for.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


def settle() -> None:
    """Prepare the memory of this process for forks; call it after everything is loaded."""
    gc.collect()
    gc.freeze()  # the collector leaves alone what is there now
    _unmap_code()


def begin() -> None:
    """Give back what the start of a worker has freed; objects from the start stay uncollected."""
    _unmap_code()
    gc.collect()
    gc.freeze()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _unmap_code() -> None:
    """Let the kernel unmap the code of libraries, of which some ran only while they were loaded.

    What is needed again, it maps again, from its page cache. Nothing is unmapped that was written,
    such as the addresses that the dynamic linker has put into tables.
    """
    if not _MAPPINGS.exists() or not hasattr(mmap, "MADV_DONTNEED"):
        return
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with _MAPPINGS.open("rb") as smaps:
        unwritten = tuple(_unwritten_code(smaps))
    for start, size in unwritten:
        libc.madvise(start, size, mmap.MADV_DONTNEED)


def _unwritten_code(smaps: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the start and size of each part of a file that this process has only read.

    The lines are read one by one: a worker would keep the room of the whole text, 0.5 MiB.
    """
    mapping = None
    for line in smaps:
        if found := _MAPPING.match(line):
            start, end, rights, inode = found.groups()
            is_code = rights in (b"r-xp", b"r--p") and inode != b"0"
            mapping = (int(start, 16), int(end, 16) - int(start, 16)) if is_code else None
        elif mapping is not None and _UNWRITTEN.match(line):
            yield mapping
