"""A cache of stored objects on the disk of one machine, so that hot ones are not fetched again.

It contains the stored bytes, so sealed objects stay sealed. It serves all processes of a machine,
and may be deleted at any time. One process fetches the bytes of an absent object, while other
readers read the growing file.

A file is ``<aa>/<id>``, ``aa`` being the last two digits of the id: the stored bytes, then `_MAGIC`
and their BLAKE3. A process checks the BLAKE3 the first time it opens a file that it did not fetch
itself, so neither a crash nor a failing disk makes it send wrong bytes. While an object is fetched,
its file is ``fetching/<id>``, locked (``flock``) by the fetching thread.

After any error of the cache, a read continues without the cache.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

from blake3 import blake3

from cloudcore.serving.counters import Count, count_nothing
from registry.blobstore.disk.disk_io import (
    check_room,
    closing_fd,
    make_folder,
    try_lock,
    write_all,
)
from registry.blobstore.disk.stored_file import StoredFile
from registry.blobstore.reading import StoredBytes
from registry.blobstore.s3.cached_objects import FollowingObject
from registry.counters import CACHE_BAD, CACHE_EVICTED, CACHE_FETCHED, CACHE_READS, CACHE_SERVED
from registry.errors import StoreUnavailable

FETCHING: Final = "fetching"
_MAGIC: Final = b"entrepot"
_TRAILER_BYTES: Final = len(_MAGIC) + 32
_CHECK_BYTES: Final = 1024 * 1024
_AT_ONCE: Final = 8
"""Maximum objects that a process fetches at once; it reads others without caching them."""
_TOUCH_SECONDS: Final = 60
_LOOK_EVERY_SECONDS: Final = 3600
_KEPT_SECONDS: Final = 7 * 86400
"""Files unread for this long are deleted: another machine may have deleted the object."""
_SILENT_SECONDS: Final = 60
"""Time between warnings: on a full disk, every read of an object not in the cache would warn."""
_CHECKED: Final = 1 << 16
"""Maximum objects that a process remembers as checked."""

_log = logging.getLogger(__name__)


class _Entry(NamedTuple):
    used_at: float
    size: int
    path: Path


class DiskCache:
    """The cache in a folder, of about `limit` bytes; all of its calls may block."""

    def __init__(self, folder: Path, limit: int, count: Count = count_nothing) -> None:
        """Use `folder`, and create it if it is missing; `count` is called in any thread.

        A process scans the folder, to delete files, whenever it has fetched a sixteenth of `limit`,
        and once an hour while it reads. So each process may exceed `limit` by a sixteenth.

        Raise `OSError` if the folder cannot be created.
        """
        make_folder(folder / FETCHING)
        self._folder = folder
        self._limit = limit
        self._count = count
        self._fetchers = ThreadPoolExecutor(_AT_ONCE, "fetching")
        self._room = threading.Lock()
        self._since_look = 0
        self._looked_at = -math.inf
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        self._fetching = 0
        self._checked: dict[str, int] = {}
        """Inodes, by object id, of files whose bytes were checked."""
        self._is_closed = False
        self._silent_until = 0.0

    def open(self, object_id: str) -> StoredFile | None:
        """Open an object, or return None if it is not in the cache."""
        self._look_now_and_then()
        try:
            descriptor = os.open(self._path(object_id), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain("cannot be read", error)
            return None
        try:
            return self._opened(object_id, descriptor)
        except OSError as error:
            os.close(descriptor)
            self._complain("cannot be read", error)
            return None

    def _look_now_and_then(self) -> None:
        with self._lock:
            if self._is_closed or time.monotonic() - self._looked_at < _LOOK_EVERY_SECONDS:
                return
            self._looked_at = time.monotonic()
            self._fetchers.submit(self._make_room, 0, looks=True)

    def _opened(self, object_id: str, descriptor: int) -> StoredFile | None:
        found = os.fstat(descriptor)
        length = found.st_size - _TRAILER_BYTES
        if not self._is_checked(object_id, descriptor, length, found.st_ino):
            os.close(descriptor)
            self.refuse(object_id)
            _log.warning("the cache has other bytes of %s than were stored", object_id)
            return None
        self._count(f"{CACHE_READS}.hit", 1)
        if time.time() - found.st_mtime > _TOUCH_SECONDS:
            os.utime(descriptor)
        return StoredFile(descriptor, length)

    def _is_checked(self, object_id: str, descriptor: int, length: int, inode: int) -> bool:
        """Return True if the file is intact; verify it the first time this process opens it."""
        if self._checked.get(object_id) == inode:
            return True
        with self._checking:
            if self._checked.get(object_id) == inode:
                return True
            if length < 0 or not _is_whole(descriptor, length):
                return False
            self._remember(object_id, inode)
            return True

    def kept(
        self, object_id: str, stored: StoredBytes, reopen: Callable[[], StoredBytes]
    ) -> StoredBytes:
        """Return a reader of an object that was not cached, and begin to fetch it into the cache.

        `stored` is the object, open in the bucket; it is closed with the returned reader, or once
        it is fetched. `reopen` opens the object again for a reader that cannot use the cache.
        """
        found, outcome = stored, "missed"
        if stored.length <= self._limit // 4:
            try:
                found, outcome = self._kept(object_id, stored, reopen)
            except OSError as error:
                self._complain("cannot be filled", error)
        self._count(f"{CACHE_READS}.{outcome}", 1)
        return found

    def _kept(
        self, object_id: str, stored: StoredBytes, reopen: Callable[[], StoredBytes]
    ) -> tuple[StoredBytes, str]:
        path = self._folder / FETCHING / object_id
        with self._lock:
            is_free = not self._is_closed and self._fetching < _AT_ONCE
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags | (os.O_CREAT if is_free else 0), 0o600)
        except FileNotFoundError:
            return stored, "missed"  # this process already fetches `_AT_ONCE` objects
        with ExitStack() as opened:
            opened.callback(os.close, descriptor)
            reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            following = FollowingObject(reader, stored.length, reopen)
            opened.callback(following.close)
            if not is_free and try_lock(descriptor, fcntl.LOCK_SH):
                return stored, "missed"  # the process that fetched it has died
            if not is_free or not self._take(path, descriptor):
                opened.pop_all()
                os.close(descriptor)
                stored.close()
                return following, "followed"
            with self._lock:
                if self._is_closed:
                    return stored, "missed"
                self._fetching += 1
                self._fetchers.submit(self._fetch, object_id, descriptor, stored)
            opened.pop_all()
        return following, "missed"

    def _take(self, path: Path, descriptor: int) -> bool:
        """Lock the file to fetch; return False if another thread fetches it, or just did."""
        if not try_lock(descriptor, fcntl.LOCK_EX):
            return False
        try:
            is_here = os.path.samestat(path.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            is_here = False
        if is_here:
            os.ftruncate(descriptor, 0)  # whoever began before has died
        return is_here

    def _fetch(self, object_id: str, descriptor: int, stored: StoredBytes) -> None:
        path = self._folder / FETCHING / object_id
        try:
            if not self._make_room(stored.length):
                path.unlink()
                return
            check_room(descriptor, stored.length)
            self._copy(descriptor, stored)
            home = self._path(object_id)
            home.parent.mkdir(mode=0o700, exist_ok=True)
            self._remember(object_id, os.fstat(descriptor).st_ino)
            self._count(CACHE_FETCHED, stored.length)
            path.rename(home)
        except (OSError, StoreUnavailable, _Closed) as error:
            with suppress(OSError):
                path.unlink()
            if not isinstance(error, _Closed):
                self._complain("cannot be filled", error)
        finally:
            os.close(descriptor)
            stored.close()
            with self._lock:
                self._fetching -= 1

    def _copy(self, descriptor: int, stored: StoredBytes) -> None:
        """Write the stored bytes and their trailer to the cache file.

        No flush is needed: a file that a crash truncated fails its check.
        """
        hashed = blake3()
        for chunk in stored.chunks():
            if self._is_closed:
                raise _Closed
            hashed.update(chunk)
            write_all(descriptor, chunk)
        write_all(descriptor, memoryview(_MAGIC + hashed.digest()))

    def _make_room(self, count: int, *, looks: bool = False) -> bool:
        """Delete least recently used files; return False if `count` bytes still do not fit.

        Scan the folder only if `looks`, or a sixteenth of the limit was added since the last scan.
        """
        with self._room:
            self._since_look += count
            if self._since_look < self._limit // 16 and not looks:
                return True
            entries = sorted(self._entries())
            used = sum(each.size for each in entries) + self._fetched_so_far()
            oldest = time.time() - _KEPT_SECONDS
            goal = self._limit - self._limit // 8 - count
            for each in entries:
                if used <= goal and each.used_at > oldest:
                    break
                with suppress(FileNotFoundError):
                    each.path.unlink()
                    self._count(CACHE_EVICTED, each.size)
                used -= each.size
            self._since_look = 0
            return used <= max(goal, 0)

    def _entries(self) -> Iterator[_Entry]:
        for folder in self._folder.iterdir():
            if folder.name == FETCHING:
                continue
            with os.scandir(folder) as files:
                for each in files:
                    with suppress(FileNotFoundError):
                        found = each.stat(follow_symlinks=False)
                        yield _Entry(found.st_mtime, found.st_size, Path(each.path))

    def _fetched_so_far(self) -> int:
        """Return the total size of files being fetched; delete files that dead processes left."""
        size = 0
        for path in (self._folder / FETCHING).iterdir():
            with (
                suppress(FileNotFoundError),
                closing_fd(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)) as descriptor,
            ):
                found = os.fstat(descriptor)
                size += found.st_size
                # A new file may not be locked yet.
                is_old = time.time() - found.st_mtime > _TOUCH_SECONDS
                if is_old and self._take(path, descriptor):
                    path.unlink()
        return size

    def drop(self, object_id: str) -> None:
        """Delete an object from the cache; do nothing if it is absent."""
        self._checked.pop(object_id, None)
        with suppress(OSError):
            self._path(object_id).unlink()

    def refuse(self, object_id: str) -> None:
        """Delete a cached file whose bytes are wrong or cannot be read."""
        self.found_bad()
        self.drop(object_id)

    def found_bad(self) -> None:
        """Count a cached file whose bytes were wrong."""
        self._count(CACHE_BAD, 1)

    def served(self, amount: int) -> None:
        """Count `amount` bytes as served from the cache."""
        self._count(CACHE_SERVED, amount)

    def close(self) -> None:
        """Stop fetching, and end the threads; open objects stay readable."""
        with self._lock:
            self._is_closed = True
        self._fetchers.shutdown()

    def _path(self, object_id: str) -> Path:
        return self._folder / object_id[-2:] / object_id

    def _remember(self, object_id: str, inode: int) -> None:
        if len(self._checked) >= _CHECKED:
            self._checked.clear()
        self._checked[object_id] = inode

    def _complain(self, what: str, error: Exception) -> None:
        now = time.monotonic()
        if now < self._silent_until:
            return
        self._silent_until = now + _SILENT_SECONDS
        why = error.strerror if isinstance(error, OSError) else str(error)
        _log.warning("the cache %s: %s", what, why)


class _Closed(Exception):
    """The cache was closed while it was being filled."""


def _is_whole(descriptor: int, length: int) -> bool:
    """Return True if a file's bytes match the checksum in its trailer."""
    hashed = blake3()
    buffer = memoryview(bytearray(min(length, _CHECK_BYTES) or 1))
    offset = 0
    while offset < length:
        read = os.preadv(descriptor, [buffer[: length - offset]], offset)
        if read == 0:
            return False
        hashed.update(buffer[:read])
        offset += read
    return os.pread(descriptor, _TRAILER_BYTES, length) == _MAGIC + hashed.digest()
