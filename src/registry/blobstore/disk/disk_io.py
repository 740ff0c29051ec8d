"""Disk I/O: errors as `StoreUnavailable`, free space, flushed folders, writeback, cached lookups.

`open_cached` opens a file whose name and inode are in the kernel's memory, without waiting for a
disk. It calls ``openat2`` with ``RESOLVE_CACHED`` (Linux 5.12, openat2(2)), which Python does not
offer. If the kernel or a sandbox refuses that call, every lookup returns None.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cloudcore.files import NO_ROOM
from registry.errors import StoreUnavailable

_RESERVE_BYTES: Final = 64 << 20
_RESERVE_SHARE: Final = 16
_UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP})
_NO_UNNAMED_FILES: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""Errors of file systems that do not support files without a name (``O_TMPFILE``)."""
_SYNC_FILE_RANGE_WRITE: Final = 2


def unavailable(error: OSError) -> StoreUnavailable:
    """Return the error to raise for an `OSError`: it names the kind of failure, never a path."""
    if error.errno in NO_ROOM:
        return StoreUnavailable("the blob store is full")
    if error.errno == errno.EROFS:
        return StoreUnavailable("the disk is read-only")
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    return StoreUnavailable(f"the blob store failed ({name})")


class DiskErrors:
    """Raises `StoreUnavailable` for an `OSError` in the block, after calling `on_failure`.

    A context manager made of a generator would be ten times slower.
    """

    __slots__ = ("_on_failure",)

    def __init__(self, on_failure: Callable[[], None] | None = None) -> None:
        self._on_failure = on_failure

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise `StoreUnavailable` for an `OSError`."""
        if isinstance(error, OSError):
            if self._on_failure is not None:
                self._on_failure()
            raise unavailable(error) from error


_DISK_ERRORS: Final = DiskErrors()


def disk_errors() -> DiskErrors:
    """Return a context manager that raises `StoreUnavailable` for an `OSError` in its block."""
    return _DISK_ERRORS


@contextmanager
def closing_fd(descriptor: int) -> Iterator[int]:
    """Yield a descriptor, and close it after the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_room(
    descriptor: int, count: int, most: int = _RESERVE_BYTES, share: int = _RESERVE_SHARE
) -> None:
    """Raise `OSError` (ENOSPC) if `count` more bytes would use the reserve of the file system.

    Deletions need free space too, for the database and for some file systems. So uploads leave 64
    MiB free, or a sixteenth of a small file system; other callers leave `most` bytes, or one part
    in `share`.
    """
    found = os.fstatvfs(descriptor)
    reserve = min(most, found.f_blocks * found.f_frsize // share)
    # A file system that reports no size has no reserve.
    if reserve and found.f_bavail * found.f_frsize < reserve + count:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_writable(folder: int) -> None:
    """Check that a file can be made in a folder: a failing disk may become read-only.

    The file has no name, and disappears when it is closed. Only an attempt is reliable: after an
    error, ext4 refuses writes although its flags and `os.access` permit them.

    Raise `OSError` if no file can be made.
    """
    try:
        os.close(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o600, dir_fd=folder))
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise


def check_folder_room(folder: Path) -> None:
    """Check that a folder can be written to, and that more than the reserve is free.

    Raise `StoreUnavailable` if the file system is full, is read-only, or failed.
    """
    with disk_errors(), closing_fd(open_folder(str(folder))) as descriptor:
        check_room(descriptor, 1)
        check_writable(descriptor)


def open_folder(name: str, parent: int | None = None) -> int:
    """Return a descriptor of the folder `name` in the folder with the descriptor `parent`.

    Without a parent, `name` is a path from the settings, and may be a symbolic link.
    """
    no_links = 0 if parent is None else os.O_NOFOLLOW
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | no_links, dir_fd=parent)


def names_in(name: str, parent: int) -> list[str]:
    """Return the names of all entries of a folder, without opening the files."""
    with closing_fd(open_folder(name, parent)) as folder:
        return os.listdir(folder)  # noqa: PTH208 - there is no path


def make_folder(path: Path) -> None:
    """Create a folder that only its owner may enter, and its missing parents, durably.

    Do nothing if the folder exists.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        flush_folder(str(folder.parent))


def flush_folder(name: str, parent: int | None = None) -> None:
    """Make the entries of a folder durable.

    A new descriptor is opened: the kernel reports an I/O error once per descriptor, so with a
    shared descriptor, another thread's flush might get the error instead.
    """
    with closing_fd(open_folder(name, parent)) as descriptor:
        os.fsync(descriptor)


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return] # ctypes is untyped


_native: Final = _sync_file_range()


def write_all(descriptor: int, view: memoryview) -> None:
    """Write all bytes of `view` at the current position of a file."""
    while view:
        view = view[os.write(descriptor, view) :]


def try_lock(descriptor: int, kind: int) -> bool:
    """Lock a descriptor without waiting; return False if another process has the lock."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def start_writeback(descriptor: int, offset: int, count: int) -> None:
    """Begin to write dirty pages to the disk without waiting, if the system supports that.

    This only shortens the later flush, and makes nothing durable. The waiting flags of
    ``sync_file_range`` are not used: they would consume an I/O error that the flush must see.

    Raise `OSError` if writing failed; treat it as a failed flush.
    """
    if _native is None or _native(descriptor, offset, count, _SYNC_FILE_RANGE_WRITE) == 0:
        return
    code = ctypes.get_errno()
    if code not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code))


_OPENAT2: Final = 437
_RESOLVE_CACHED: Final = 0x20
_HOW_BYTES: Final = 24
"""Size of ``struct open_how``: flags, mode and resolve, 64 bits each."""


def how(flags: int) -> bytes:
    """Encode flags of `os.open` as the ``open_how`` that `open_cached` passes to the kernel."""
    return struct.pack("=QQQ", flags, 0, _RESOLVE_CACHED)


def open_cached(folder: int, path: str, how: bytes) -> int | None:
    """Return a descriptor of `path` below a folder descriptor, or None.

    `how` is a result of the function `how`. None means that the lookup might wait, or failed: open
    the file in a thread to get the error.
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
    with closing_fd(os.open("/", os.O_RDONLY | os.O_DIRECTORY)) as folder:
        descriptor = function(_OPENAT2, folder, b".", how(os.O_RDONLY), _HOW_BYTES)
    if descriptor < 0:
        return None
    os.close(descriptor)
    return function


_system_call: Final = _find_system_call()
lacks_cached_lookups: Final = _system_call is None
"""True if the system does not support cached lookups, so that `open_cached` returns None."""
