"""The staged bytes of an upload: a locked file, hashed as it is written."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from registry.blobstore import cached_lookup
from registry.blobstore.base import PLAIN, DataKey, ObjectUnknown, StageBusy, Stored
from registry.blobstore.blocking import BlockingStaged
from registry.blobstore.copying import copy_prefix
from registry.blobstore.disk_io import (
    check_room,
    disk_errors,
    flush_folder,
    open_folder,
    start_writeback,
    unavailable,
)
from registry.blobstore.folders import Folders, object_path, shard
from registry.blobstore.staging import (
    HasherCache,
    RunningDigests,
    State,
    refuse_key,
    verified,
    wanted_algorithms,
)
from registry.errors import StoreUnavailable
from registry.oci.digest import Digest, Hasher, new_hasher

_READ_BYTES: Final = 1024 * 1024
_WRITEBACK_BYTES: Final = 8 * 1024 * 1024
_EDGE_BYTES: Final = 64 * 1024
"""At least a block of any file system, and a page of memory."""
_LARGE_BYTES: Final = 1024 * 1024
"""Freeing the blocks of a smaller file takes less time than a thread costs."""
_TAKE_UP: Final = cached_lookup.how(os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)


def open_held(folder: int, path: str, flags: int = 0) -> int:
    """Open and lock a staged file below `folder`, also against other writers of this process.

    The lock belongs to the open file, so the kernel releases it when the process dies.

    Raises:
        FileNotFoundError: there is no such file, or it was just deleted or renamed.
        StageBusy: another writer holds it, or with ``O_EXCL`` in `flags`, it exists.

    """
    try:
        descriptor = os.open(path, flags | os.O_RDWR | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    except FileExistsError as error:
        raise StageBusy(path) from error
    _hold(folder, path, descriptor)
    return descriptor


def _hold(folder: int, path: str, descriptor: int) -> None:
    """Lock a file that was just opened; close it if that fails."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _check_linked(folder, path, descriptor)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StageBusy(path) from error
    except BaseException:
        os.close(descriptor)
        raise


def _check_linked(folder: int, path: str, descriptor: int) -> None:
    """Check that the file was not replaced between opening and locking it."""
    linked = os.stat(path, dir_fd=folder, follow_symlinks=False)
    if not os.path.samestat(linked, os.fstat(descriptor)):
        raise StageBusy(path)


class _OnFailure:
    """A context manager that, for an OSError, calls `call` and raises `StoreUnavailable`."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Call back if the block raised an OSError."""
        if isinstance(error, OSError):
            self._call()
            raise unavailable(error) from error


class StagedFile(BlockingStaged):
    """A staged file of `DiskFiles`; see `Staged`."""

    def __init__(
        self, folders: Folders, cache: HasherCache, upload_id: str, descriptor: int, state: State
    ) -> None:
        self._folders = folders
        self._cache = cache
        self._upload_id = upload_id
        self._descriptor = descriptor
        self._state = state
        self._offset = os.fstat(descriptor).st_size
        self._digests = RunningDigests({}, {})
        self._is_object = False
        self._is_let_go = False
        self._acknowledged = 0
        self._bytes_durable = False
        self._entry_durable = False
        self._writeback_offset = 0

    @classmethod
    def create(
        cls, folders: Folders, cache: HasherCache, upload_id: str, algorithm: str | None
    ) -> StagedFile:
        """Create and hold an empty file."""
        try:
            descriptor = open_held(folders.uploads, upload_id, os.O_CREAT | os.O_EXCL)
        except FileNotFoundError as error:  # deleted by another process before it was locked
            raise StageBusy(upload_id) from error
        staged = cls(folders, cache, upload_id, descriptor, State.HELD)
        staged._digests = RunningDigests.of_nothing(algorithm)
        return staged

    @classmethod
    def take_up(cls, folders: Folders, cache: HasherCache, upload_id: str) -> StagedFile:
        """Open and lock the file in ``uploads``, or the object it has become."""
        # The file may move between two of these, but not twice: moving it needs the lock.
        for is_object in (False, True, False):
            folder = folders.objects if is_object else folders.uploads
            path = object_path(upload_id) if is_object else upload_id
            with suppress(FileNotFoundError):
                staged = cls(folders, cache, upload_id, open_held(folder, path), State.OPENED)
                try:
                    staged._is_object = is_object or staged._drop_second_name()
                except BaseException:
                    staged.close()
                    raise
                return staged
        raise ObjectUnknown(upload_id)

    @classmethod
    def take_up_cached(
        cls, folders: Folders, cache: HasherCache, upload_id: str
    ) -> StagedFile | None:
        """Open and lock the file in ``uploads``, or return None: then call `take_up`.

        None if that might wait for the disk, or the file has two names or is an object.
        """
        descriptor = cached_lookup.open_cached(folders.uploads, upload_id, _TAKE_UP)
        if descriptor is None:
            return None
        try:
            _hold(folders.uploads, upload_id, descriptor)
        except FileNotFoundError:  # it was just moved
            return None
        if os.fstat(descriptor).st_nlink != 1:
            os.close(descriptor)
            return None
        return cls(folders, cache, upload_id, descriptor, State.OPENED)

    @property
    def offset(self) -> int:
        """Return the number of staged bytes."""
        return self._offset

    @property
    def closes_slowly(self) -> bool:
        """Return True if the file is large and has no name any more: closing frees its blocks."""
        return (
            not self._is_let_go
            and self._offset >= _LARGE_BYTES
            and os.fstat(self._descriptor).st_nlink == 0
        )

    def rewinds_at_once(self, offset: int) -> bool:
        """Return True if the file is in ``uploads`` and has this length."""
        return offset == self._offset and not self._is_object

    def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        data_key: DataKey | None = None,
    ) -> None:
        """Cut the bytes off at `offset`; move the file back to ``uploads`` if it is an object.

        For resumed bytes, non-empty `digests` also prove that the bytes were flushed at this
        offset. For a new file they do not: they may be those of an earlier, lost file.

        There may be bytes beyond `offset` because a flush failed. Then the block that holds the
        last acknowledged bytes may be wrong on the disk, although the kernel takes it for clean. So
        that block is written and flushed again before the rest is cut off, and `commit` reads all
        bytes again.

        A file with a second name also belongs to an object or a backup, and must not change: the
        upload is lost (ObjectUnknown).
        """
        refuse_key(data_key)
        if self._state is not State.OPENED:
            self._held()
        if not 0 <= offset <= self._offset:
            raise ObjectUnknown(self._upload_id)
        known = digests or {}
        is_proven = bool(known) and self._state is State.OPENED
        self._entry_durable |= is_proven
        with disk_errors():
            if self._state is State.OPENED and os.fstat(self._descriptor).st_nlink > 1:
                raise ObjectUnknown(self._upload_id)
            if self._is_object:
                self._take_back()
            if offset < self._offset:
                if offset:
                    self._renew_edge(offset)
                    known = {}
                os.ftruncate(self._descriptor, offset)
        self._bytes_durable = (self._bytes_durable or is_proven) and offset == self._offset
        self._offset = self._writeback_offset = self._acknowledged = offset
        hashers = self._cache.take(self._upload_id, known)
        self._digests = (
            RunningDigests(hashers, known) if offset else RunningDigests.of_nothing(algorithm)
        )
        self._state = State.HELD

    def copy_from(self, source_id: str, size: int) -> None:
        """Fill a new file with the first `size` bytes of another id.

        They are hashed at the commit, which finds a wrong copy.

        Raises:
            ObjectUnknown: there are fewer.
            StoreUnavailable: as `write`.

        """
        descriptor = self._held()
        with disk_errors():
            copy_prefix(self._folders, source_id, descriptor, size)
        self._offset = self._writeback_offset = size
        self._digests = RunningDigests({}, {})

    def write(self, view: memoryview, /) -> None:
        """Append bytes and hash them; begin to write them to the disk every 8 MiB."""
        descriptor = self._held()
        written = 0
        try:
            with disk_errors():
                check_room(descriptor, view.nbytes)
                while written < view.nbytes:
                    self._bytes_durable = False
                    written += os.pwrite(descriptor, view[written:], self._offset + written)
        finally:
            if written:
                self._digests.update(view[:written])
                self._offset += written
        behind = self._offset - self._writeback_offset
        if behind >= _WRITEBACK_BYTES:
            with self._condemning(keeps=True):
                start_writeback(descriptor, self._writeback_offset, behind)
            self._writeback_offset = self._offset

    def flush(self) -> Mapping[str, str]:
        """Make the bytes durable, then, the first time, their entry in ``uploads``."""
        self._flush_bytes()
        if not self._entry_durable:
            with self._condemning(keeps=True):
                flush_folder("uploads", self._folders.root)
            self._entry_durable = True
        return self._digests.finished()

    def commit(self, expected: Digest) -> Stored:
        """Verify and flush the bytes, rename the file into ``objects``, flush that folder.

        The order matters: an object's name exists only for bytes that are verified and durable.
        """
        digest, alias = verified(self._digests_with(expected.algorithm), expected)
        self._flush_bytes()
        with self._condemning(keeps=True):
            self._rename()
        self._state = State.COMMITTED
        size = self._offset
        return Stored(self._upload_id, digest, alias, size, size, PLAIN)

    def discard(self) -> None:
        """Delete the staged bytes; do nothing if they are an object or no longer held."""
        if self._is_let_go or self._state is State.COMMITTED:
            return
        try:
            with disk_errors(), suppress(FileNotFoundError):
                os.unlink(self._upload_id, dir_fd=self._folders.uploads)
        finally:
            self._let_go()

    def close(self) -> None:
        """End the hold; keep the bytes, and their hashers for the next request."""
        if self._state is State.HELD and self._digests.hashers:
            self._cache.put(self._upload_id, self._digests.hashers)
        if not self._is_let_go:
            self._let_go()

    def _held(self) -> int:
        if self._state is State.CONDEMNED:
            raise StoreUnavailable("the blob store failed; what was written since is discarded")
        if self._state is not State.HELD:
            raise ValueError(f"the staged bytes are {self._state.value}")
        return self._descriptor

    def _let_go(self) -> None:
        self._is_let_go = True
        self._state = State.ENDED
        os.close(self._descriptor)

    def _condemning(self, *, keeps: bool = False) -> _OnFailure:
        """Return a block after whose disk error this hold can write nothing more.

        After a failed flush the kernel forgets which pages it lost, so a second flush that succeeds
        proves nothing. With `keeps`, the next hold has what was acknowledged before this one.
        Without it, or if nothing was acknowledged, all bytes are discarded.
        """
        return _OnFailure(self._condemn_new if keeps else self._condemn)

    def _condemn_new(self) -> None:
        """Condemn this hold; keep what was acknowledged before it, if possible."""
        if self._acknowledged and self._is_suspect():
            self._state = State.CONDEMNED
        else:
            self._condemn()

    def _condemn(self) -> None:
        with suppress(StoreUnavailable):
            self.discard()
        self._state = State.CONDEMNED

    def _is_suspect(self) -> bool:
        """Make the file longer than acknowledged, so that `rewind` renews the last block.

        Return False if that failed.
        """
        if self._offset > self._acknowledged:
            return True
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._acknowledged + 1)
            return True
        return False

    def _renew_edge(self, offset: int) -> None:
        """Write and flush the last block before `offset` again, on a new descriptor.

        No flush has failed on that descriptor. The bytes come from the page cache or the disk; if
        they are wrong, the hash at the commit finds it.
        """
        start = (offset - 1) // _EDGE_BYTES * _EDGE_BYTES
        edge = bytearray(offset - start)
        if os.preadv(self._descriptor, [edge], start) != len(edge):
            raise OSError(errno.EIO, "a staged file has become shorter")
        if os.pwrite(self._descriptor, edge, start) != len(edge):
            raise OSError(errno.EIO, "a block of a staged file was written only in part")
        os.fsync(self._descriptor)

    def _flush_bytes(self) -> None:
        descriptor = self._held()
        if not self._bytes_durable:
            with self._condemning(keeps=True):
                os.fsync(descriptor)
            self._bytes_durable = True

    def _rename(self) -> None:
        """Move the file into ``objects`` and make its entry there durable.

        ``uploads`` is not flushed: a power loss may leave its entry as a second name, which
        `take_up` removes before anything is written.
        """
        name = self._upload_id
        folder = open_folder(shard(name), self._folders.objects)
        try:
            os.rename(name, name, src_dir_fd=self._folders.uploads, dst_dir_fd=folder)
            try:
                os.fsync(folder)
            except OSError:
                self._undo_rename(folder)
                raise
        finally:
            os.close(folder)

    def _undo_rename(self, folder: int) -> None:
        """Move the object back to ``uploads``; if that fails, delete it."""
        name = self._upload_id
        try:
            os.rename(name, name, src_dir_fd=folder, dst_dir_fd=self._folders.uploads)
        except OSError:
            os.unlink(name, dir_fd=folder)
            raise

    def _drop_second_name(self) -> bool:
        """Remove the name in ``uploads`` if the file is also an object; return True if so.

        A power loss that undid half of a rename leaves both names.
        """
        opened = os.fstat(self._descriptor)
        if opened.st_nlink == 1:
            return False
        try:
            there = os.stat(
                object_path(self._upload_id), dir_fd=self._folders.objects, follow_symlinks=False
            )
        except FileNotFoundError:
            return False
        if not os.path.samestat(opened, there):
            return False
        os.unlink(self._upload_id, dir_fd=self._folders.uploads)
        return True

    def _take_back(self) -> None:
        """Move an object back to ``uploads``, durably, before its bytes are changed.

        Otherwise a power loss could undo the move but not the change, and leave a damaged object.
        """
        name = self._upload_id
        os.rename(
            object_path(name),
            name,
            src_dir_fd=self._folders.objects,
            dst_dir_fd=self._folders.uploads,
        )
        self._is_object = False
        flush_folder("uploads", self._folders.root)
        self._entry_durable = True

    def _digests_with(self, algorithm: str) -> dict[str, str]:
        """Return the digests of all bytes; read them once if a hasher is missing."""
        descriptor = self._held()
        missing = self._digests.missing(wanted_algorithms(algorithm))
        if not missing:
            return self._digests.finished()
        hashers = {name: new_hasher(name) for name in missing}
        with self._condemning():
            _hash_file(descriptor, self._offset, hashers)
        return self._digests.finished() | {name: h.hexdigest() for name, h in hashers.items()}


def _hash_file(descriptor: int, size: int, hashers: Mapping[str, Hasher]) -> None:
    """Hash the first `size` bytes of a file with all `hashers`."""
    buffer = memoryview(bytearray(min(size, _READ_BYTES)))
    os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_SEQUENTIAL)
    offset = 0
    while offset < size:
        count = os.preadv(descriptor, [buffer[: size - offset]], offset)
        if count == 0:
            raise OSError(errno.EIO, "a staged file is shorter than what was written to it")
        for hasher in hashers.values():
            hasher.update(buffer[:count])
        offset += count
