"""Open files whose names and inodes are in the kernel's memory, without waiting for a disk.

It calls ``openat2`` with ``RESOLVE_CACHED`` (Linux 5.12, openat2(2)), which Python does not offer.
If the kernel or a sandbox refuses that, every lookup returns None.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from typing import Final

_OPENAT2: Final = 437
_RESOLVE_CACHED: Final = 0x20
_HOW_BYTES: Final = 24
"""Size of ``struct open_how``: flags, mode and resolve, 64 bits each."""


def how(flags: int) -> bytes:
    """Return the ``open_how`` of `open_cached` for flags of `os.open`."""
    return struct.pack("=QQQ", flags, 0, _RESOLVE_CACHED)


def open_cached(folder: int, path: str, how: bytes) -> int | None:
    """Return a descriptor of `path` below a folder descriptor, or None.

    None if the lookup may wait or has failed: then open the file in a thread, which raises the
    error.
    """
    if _system_call is None:
        return None
    descriptor = _system_call(_OPENAT2, folder, path.encode(), how, _HOW_BYTES)
    return None if descriptor < 0 else descriptor


def _find_system_call() -> Callable[[int, int, bytes, bytes, int], int] | None:
    if sys.platform != "linux":
        return None
    # PyDLL keeps the interpreter's lock: releasing it costs more than this call, which never waits.
    function = ctypes.PyDLL(None).syscall
    function.argtypes = [
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    function.restype = ctypes.c_long
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        descriptor = function(_OPENAT2, folder, b".", how(os.O_RDONLY), _HOW_BYTES)
    finally:
        os.close(folder)
    if descriptor < 0:
        return None
    os.close(descriptor)
    return function


_system_call: Final = _find_system_call()
is_blind: Final = _system_call is None
"""True if the system does not support this."""
