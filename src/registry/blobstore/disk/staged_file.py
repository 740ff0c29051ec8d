"""The staged bytes of an upload: a locked file, hashed as it is written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from registry.blobstore.base import PLAIN, DataKey, ObjectUnknown, StageBusy, Stored
from registry.blobstore.disk import disk_io
from registry.blobstore.disk.copying import copy_prefix, prefix_of
from registry.blobstore.disk.folders import Folders, object_path, shard
from registry.blobstore.sealed.staged import RunningChecksum, SealedBytes
from registry.blobstore.staged_io import PlainBytes, StagedIO
from registry.blobstore.staging import (
    IDENTITY,
    HasherCache,
    RunningDigests,
    State,
    UploadCache,
    check_held,
    verified,
    wanted_algorithms,
)
from registry.errors import StoreUnavailable
from registry.oci.digest import Digest, new_hasher

_WRITEBACK_BYTES: Final = 8 * 1024 * 1024
_LARGE_BYTES: Final = 1024 * 1024
"""Freeing the blocks of a smaller file takes less time than starting a thread."""
_TAKE_UP: Final = disk_io.how(os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)


StagedBytes = PlainBytes | SealedBytes


def open_held(folder: int, path: str, flags: int = 0) -> int:
    """Open and lock a staged file below `folder`, also against other writers of this process.

    The lock belongs to the open file, so the kernel releases it when the process dies.

    Raise `FileNotFoundError` if there is no such file, or it was just deleted or renamed;
    `StageBusy` if another writer holds it, or the file exists although `flags` has ``O_EXCL``.
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
    """Raise `StageBusy` if the file was replaced between opening and locking it."""
    linked = os.stat(path, dir_fd=folder, follow_symlinks=False)
    if not os.path.samestat(linked, os.fstat(descriptor)):
        raise StageBusy(path)


class Shared:
    """Settings and caches that the staged files of a store share.

    The caches keep an upload's hash states in this process from one request to the next. With
    `compresses`, sealed bytes are compressed if that saves space.
    """

    def __init__(self, *, compresses: bool) -> None:
        self.compresses: Final = compresses
        self.hashers: Final = HasherCache()
        self.checksums: Final = UploadCache[RunningChecksum]()


class StagedFile:
    """A staged file of `DiskFiles`; see `Staged`.

    Resumed bytes count as sealed if a data key is passed to `rewind`.
    """

    def __init__(
        self, folders: Folders, shared: Shared, upload_id: str, descriptor: int, state: State
    ) -> None:
        self._folders = folders
        self._shared = shared
        self._upload_id = upload_id
        self._file = StagedIO(descriptor, self._condemn_new)
        self._state = state
        self._bytes: StagedBytes | None = None
        self._stored_size = self._file.size()
        self._digests = RunningDigests({}, {})
        self._is_object = False
        self._is_let_go = False
        self._acknowledged = 0
        self._entry_durable = False
        self._writeback_offset = 0

    @classmethod
    def create(
        cls,
        folders: Folders,
        shared: Shared,
        upload_id: str,
        algorithm: str | None,
        data_key: DataKey | None,
    ) -> StagedFile:
        """Create an empty file and lock it for this writer."""
        try:
            descriptor = open_held(folders.uploads, upload_id, os.O_CREAT | os.O_EXCL)
        except FileNotFoundError as error:  # deleted by another process before it was locked
            raise StageBusy(upload_id) from error
        staged = cls(folders, shared, upload_id, descriptor, State.HELD)
        staged._digests = RunningDigests.of_nothing(algorithm)
        staged._bytes = staged._bytes_with(data_key)
        staged._bytes.rewind(0)
        return staged

    @classmethod
    def take_up(cls, folders: Folders, shared: Shared, upload_id: str) -> StagedFile:
        """Open and lock the file in ``uploads``, or the object that it has become.

        Raise `ObjectUnknown` if there is neither.
        """
        # The file may move between two of these, but not twice: moving it needs the lock.
        for is_object in (False, True, False):
            folder = folders.objects if is_object else folders.uploads
            path = object_path(upload_id) if is_object else upload_id
            with suppress(FileNotFoundError):
                staged = cls(folders, shared, upload_id, open_held(folder, path), State.OPENED)
                try:
                    staged._is_object = is_object or staged._drop_second_name()
                except BaseException:
                    staged.close()
                    raise
                return staged
        raise ObjectUnknown(upload_id)

    @classmethod
    def take_up_cached(cls, folders: Folders, shared: Shared, upload_id: str) -> StagedFile | None:
        """Open and lock the file in ``uploads``; return None if `take_up` must be called instead.

        That is so if opening might wait for the disk, or if the file has two names or is an object.
        """
        descriptor = disk_io.open_cached(folders.uploads, upload_id, _TAKE_UP)
        if descriptor is None:
            return None
        try:
            _hold(folders.uploads, upload_id, descriptor)
        except FileNotFoundError:  # it was just moved
            return None
        if os.fstat(descriptor).st_nlink != 1:
            os.close(descriptor)
            return None
        return cls(folders, shared, upload_id, descriptor, State.OPENED)

    @property
    def offset(self) -> int:
        """Return the number of staged bytes; before `rewind`, the number of stored bytes."""
        return self._stored_size if self._bytes is None else self._bytes.length

    @property
    def closes_slowly(self) -> bool:
        """Return True if the file is large and already deleted: closing then frees its blocks."""
        return (
            not self._is_let_go
            and self.offset >= _LARGE_BYTES
            and os.fstat(self._file.descriptor).st_nlink == 0
        )

    def rewind_is_immediate(self, offset: int, *, is_sealed: bool = False) -> bool:
        """Return True if the file is in ``uploads``, not sealed, and `offset` bytes long."""
        return offset == self.offset and not self._is_object and not is_sealed

    def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        data_key: DataKey | None = None,
    ) -> None:
        """Truncate the bytes to `offset`; move the file back to ``uploads`` if it is an object.

        For resumed bytes, non-empty `digests` also prove that the bytes were flushed at this
        offset. For a new file they prove nothing: they may belong to an earlier, lost file.

        There may be bytes beyond `offset` because a flush failed (`PlainBytes.rewind`); then
        `commit` reads all bytes again.

        Raise `ObjectUnknown` if there are fewer bytes, or if the file has a second name: then it
        also belongs to an object or a backup, and must not change, so the upload is lost.
        """
        if self._state is not State.OPENED:
            self._held()
        known = digests or {}
        is_proven = bool(known) and self._state is State.OPENED
        with disk_io.disk_errors():
            stored = self._bytes or self._bytes_with(data_key)
            if (stored.encoding == PLAIN) != (data_key is None):
                raise ValueError("the data key of staged bytes cannot be taken away or added")
            if not stored.has(offset):
                raise ObjectUnknown(self._upload_id)
            if self._state is State.OPENED and os.fstat(self._file.descriptor).st_nlink > 1:
                raise ObjectUnknown(self._upload_id)
            self._entry_durable |= is_proven
            if self._is_object:
                self._take_back()
            was_durable = self._file.is_durable or is_proven
            self._bytes = stored
            is_unchanged = stored.rewind(offset)
            self._file.is_durable = was_durable and is_unchanged
        if not is_unchanged and offset:
            known = {}
        self._writeback_offset = self._acknowledged = offset
        hashers = self._shared.hashers.take_verified(self._upload_id, known)
        self._digests = (
            RunningDigests(hashers, known) if offset else RunningDigests.of_nothing(algorithm)
        )
        self._state = State.HELD

    def copy_from(self, source_id: str, size: int, source_key: DataKey | None) -> None:
        """Fill a new file with the first `size` bytes stored under another id.

        Plain bytes are copied by the kernel, and hashed at the commit, which detects a wrong copy.
        Sealed bytes are decrypted, and sealed again as `write` does.

        Raise `ObjectUnknown` if there are fewer bytes, `StoreUnavailable` as `write` does.
        """
        stored = self._held()
        if source_key is not None or not isinstance(stored, PlainBytes):
            for view in prefix_of(self._folders, source_id, source_key, size):
                self.write(view)
            return
        with disk_io.disk_errors():
            copy_prefix(self._folders, source_id, self._file.descriptor, size)
        stored.filled(size)
        self._writeback_offset = size
        self._digests = RunningDigests({}, {})

    def write(self, view: memoryview, /) -> None:
        """Append bytes and hash them; start writing them to the disk every 8 MiB."""
        stored = self._held()
        before = stored.length
        try:
            with disk_io.disk_errors():
                disk_io.check_room(self._file.descriptor, view.nbytes)
                stored.append(view)
        finally:
            written = stored.length - before
            if written:
                self._digests.update(view[:written])
        behind = stored.length - self._writeback_offset
        if behind >= _WRITEBACK_BYTES:
            with self._condemning(keeps=True):
                disk_io.start_writeback(self._file.descriptor, self._writeback_offset, behind)
            self._writeback_offset = stored.length

    def flush(self) -> Mapping[str, str]:
        """Make the bytes durable, then, the first time, the file's entry in ``uploads``."""
        stored = self._held()
        with self._condemning(keeps=True):
            stored.settle()
        self._flush_bytes()
        if not self._entry_durable:
            with self._condemning(keeps=True):
                disk_io.flush_folder("uploads", self._folders.root)
            self._entry_durable = True
        return self._digests.finished()

    def commit(self, expected: Digest | None) -> Stored:
        """Verify and flush the bytes, rename the file into ``objects``, flush that folder.

        The order matters: an object's name exists only for bytes that are verified and durable.
        """
        stored = self._held()
        algorithm = IDENTITY if expected is None else expected.algorithm
        digest, alias = verified(self._digests_with(algorithm), expected)
        with self._condemning(keeps=True):
            stored.finish()
            checksum = stored.checksum()
        self._flush_bytes()
        with self._condemning(keeps=True):
            stored_size = self._file.size()
            self._rename()
        self._state = State.COMMITTED
        size = stored.length
        return Stored(self._upload_id, digest, alias, size, stored_size, stored.encoding, checksum)

    def discard(self) -> None:
        """Delete the staged bytes; do nothing if they are an object or no longer held."""
        if self._is_let_go or self._state is State.COMMITTED:
            return
        try:
            with disk_io.disk_errors(), suppress(FileNotFoundError):
                os.unlink(self._upload_id, dir_fd=self._folders.uploads)
        finally:
            self._let_go()

    def close(self) -> None:
        """Release the file; keep its bytes, and its hash states for the next request."""
        if self._state is State.HELD and self._digests.hashers:
            self._shared.hashers.put(self._upload_id, self._digests.hashers)
        if self._state is State.HELD and self._bytes is not None:
            with suppress(OSError):
                self._bytes.close()
        if not self._is_let_go:
            self._let_go()

    def _bytes_with(self, data_key: DataKey | None) -> StagedBytes:
        if data_key is None:
            return PlainBytes(self._file)
        return SealedBytes(
            self._file,
            self._upload_id,
            data_key,
            self._shared.checksums,
            compresses=self._shared.compresses,
        )

    def _held(self) -> StagedBytes:
        check_held(self._state)
        assert self._bytes is not None
        return self._bytes

    def _let_go(self) -> None:
        self._is_let_go = True
        self._state = State.ENDED
        os.close(self._file.descriptor)

    def _condemning(self, *, keeps: bool = False) -> disk_io.DiskErrors:
        """Return a context manager: after a disk error in its block, this writer can write no more.

        After a failed flush the kernel forgets which pages it lost, so a second flush that succeeds
        proves nothing. With `keeps`, bytes that were acknowledged before this writer began stay for
        the next writer. Without it, or if there are none, all bytes are discarded.
        """
        return disk_io.DiskErrors(self._condemn_new if keeps else self._condemn)

    def _condemn_new(self) -> None:
        """Stop this writer for good; if possible, keep the bytes acknowledged before it began."""
        if self._state is State.CONDEMNED:
            return
        if self._state is State.OPENED:  # the next writer's rewind checks what this one has done
            self._state = State.CONDEMNED
            return
        if self._acknowledged and self._bytes is not None:
            with suppress(OSError):
                self._bytes.mark(self._acknowledged)
                self._state = State.CONDEMNED
                return
        self._condemn()

    def _condemn(self) -> None:
        with suppress(StoreUnavailable):
            self.discard()
        self._state = State.CONDEMNED

    def _flush_bytes(self) -> None:
        self._held()
        if not self._file.is_durable:
            with self._condemning(keeps=True):
                self._file.flush()

    def _rename(self) -> None:
        """Move the file into ``objects`` and make its entry there durable.

        ``uploads`` is not flushed: a power loss may leave its entry as a second name, which
        `take_up` removes before anything is written.
        """
        name = self._upload_id
        with disk_io.closing_fd(disk_io.open_folder(shard(name), self._folders.objects)) as folder:
            os.rename(name, name, src_dir_fd=self._folders.uploads, dst_dir_fd=folder)
            try:
                os.fsync(folder)
            except OSError:
                self._undo_rename(folder)
                raise

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

        Both names exist after a power loss that undid half of a rename.
        """
        opened = os.fstat(self._file.descriptor)
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
        disk_io.flush_folder("uploads", self._folders.root)
        self._entry_durable = True

    def _digests_with(self, algorithm: str) -> dict[str, str]:
        """Return the digests of all bytes; read the bytes if a digest is missing."""
        stored = self._held()
        missing = self._digests.missing(wanted_algorithms(algorithm))
        if not missing:
            return self._digests.finished()
        hashers = {name: new_hasher(name) for name in missing}
        with self._condemning():
            stored.hash_into(hashers)
        return self._digests.finished() | {name: h.hexdigest() for name, h in hashers.items()}
