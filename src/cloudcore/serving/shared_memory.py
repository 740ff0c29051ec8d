"""Keep the memory of a server small: few arenas, and pages that workers share with their parent.

A page of a forked worker stays shared until a process writes to it; then the process gets a copy.
Without `settle`, a worker soon copies most of what it was given: its garbage collector writes to
the head of each object, and its allocators put new objects into the holes that deleted ones left,
a few bytes in each of thousands of pages.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_M_ARENA_MAX: Final = -8
"""mallopt(3)."""
_ARENAS: Final = 2
_POOL_BITS: Final = 14
"""pymalloc: blocks of one size lie in pools of 16 KiB (Objects/obmalloc.c)."""
_POOL_HEADER: Final = 48
_LARGEST_SMALL: Final = 512
_MOST_BYTES: Final = 8 << 20
"""Bytes of blocks of one size after which another allocator must be in the place of pymalloc."""
_LARGEST_HOLE: Final = 64 << 10
_MARGIN: Final = 8 << 10
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
    sys._clear_type_cache()  # it refers to names, which a worker would soon replace by others
    gc.collect()
    gc.freeze()  # the collector leaves alone what is there now
    _unmap_code()
    _fill_pools()
    _fill_heap()


def begin() -> None:
    """Give back what the start of a worker has freed; objects from the start stay uncollected."""
    _unmap_code()
    gc.collect()
    gc.freeze()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _fill_pools() -> None:
    """Take the free blocks in pools of small objects, so that a worker begins with empty pools."""
    allocate = ctypes.pythonapi.PyObject_Malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    for size in range(16, _LARGEST_SMALL + 1, 16):
        capacity = ((1 << _POOL_BITS) - _POOL_HEADER) // size
        pool, taken = 0, 0
        for _ in range(_MOST_BYTES // size):
            found = allocate(size) >> _POOL_BITS
            pool, taken = found, (taken + 1 if found == pool else 1)
            if taken == capacity:  # the pool was empty: no other has a free block
                break
        else:
            return


def _fill_heap() -> None:
    """Take the free chunks below the end of glibc's heap; elsewhere, do nothing."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        return
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    libc.malloc_trim(0)  # merge neighbours, and return what lies at the end
    end = libc.sbrk(0) - _MARGIN
    size = _LARGEST_HOLE
    while size > 0:
        found = libc.malloc(size)
        if not found or found >= end:  # there is no hole of this size any more
            libc.free(found)
            size -= max(16, size >> 4)


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
