"""Copy files durably: a target has all its bytes, or does not exist."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from blake3 import blake3

from registry.blobstore.disk.disk_io import (
    closing_fd,
    flush_folder,
    make_folder,
    try_lock,
    write_all,
)

PART: Final = ".part"
_NO_KERNEL_COPY: Final = frozenset(
    {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF}
)
_CHUNK: Final = 8 << 20
_HASHERS: Final[Mapping[str, Callable[[], Any]]] = {"sha256": hashlib.sha256, "blake3": blake3}


class FolderBusy(Exception):
    """Another process is using this backup folder."""


@contextmanager
def locked(path: Path, *, is_read: bool = False) -> Iterator[None]:
    """Lock a file during the block; with `is_read`, share the lock with other readers.

    With `is_read`, a missing file is not created, as the folder may be on a read-only medium.

    Raise `FolderBusy` if another process holds the lock.
    """
    flags = os.O_RDONLY if is_read else os.O_RDWR | os.O_CREAT
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        if not is_read:
            raise
        yield
        return
    with closing_fd(descriptor):
        if not try_lock(descriptor, fcntl.LOCK_SH if is_read else fcntl.LOCK_EX):
            raise FolderBusy(f"a backup to {path.parent}, or from it, is under way")
        yield


def copy_file(source: Path, target: Path, *, links: bool = False) -> None:
    """Copy a file, replacing `target`; with `links`, make a hard link instead.

    The bytes are durable afterwards, the entry of `target` only once its folder is flushed. If the
    file system supports it, the copy shares its bytes with `source` until either is written to.
    """
    part = target.with_name(f"{target.name}{PART}")
    with suppress(FileNotFoundError):
        part.unlink()
    if links:
        os.link(source, part, follow_symlinks=False)
    else:
        opened = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with closing_fd(opened) as reading, _new(part) as writing:
            _copy_bytes(reading, writing)
    part.replace(target)
    with suppress(FileNotFoundError):  # rename(2) removes neither of two names of one file
        part.unlink()


def write_file(chunks: Iterable[memoryview], target: Path) -> None:
    """Write bytes to a file, replacing `target`; they are as durable as after `copy_file`."""
    part = target.with_name(f"{target.name}{PART}")
    with suppress(FileNotFoundError):
        part.unlink()
    with _new(part) as writing:
        for chunk in chunks:
            write_all(writing, chunk)
    part.replace(target)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hash_of(path, "sha256")


def hash_of(path: Path, algorithm: str) -> str:
    """Return the hash of a file, in hex; `algorithm` is ``sha256`` or ``blake3``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _HASHERS[algorithm]).hexdigest()


def size_of(path: Path) -> int | None:
    """Return the size of a file in bytes, or None if it does not exist."""
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return None


def make_shards(objects: Path, shards: tuple[str, ...]) -> None:
    """Create the shard folders of objects, durably."""
    make_folder(objects)
    for name in shards:
        (objects / name).mkdir(mode=0o700, exist_ok=True)
    flush_folder(str(objects))


def is_same_file_system(one: Path, other: Path) -> bool:
    """Return True if two folders are on one file system, so that hard links work between them."""
    return one.stat().st_dev == other.stat().st_dev


@contextmanager
def _new(part: Path) -> Iterator[int]:
    """Yield the descriptor of a new file to write to; flush the file at the end of the block."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with closing_fd(os.open(part, flags, 0o600)) as writing:
        yield writing
        os.fsync(writing)


def _copy_bytes(reading: int, writing: int) -> None:
    try:
        while os.copy_file_range(reading, writing, _CHUNK):
            pass
    except OSError as error:
        if error.errno not in _NO_KERNEL_COPY:
            raise
    # Continue where the kernel stopped: some file systems claim to have copied nothing.
    while chunk := os.read(reading, _CHUNK):
        write_all(writing, memoryview(chunk))
