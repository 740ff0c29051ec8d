"""The files of a blob store on a local disk: one per object, opened by id below a folder."""

# ruff: noqa: D102 - methods without a docstring are documented in `blobstore.store`

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from cloudcore.resource_names import is_canonical_uuid
from registry.blobstore.backups import deleting
from registry.blobstore.base import DataKey, ListedBytes, ObjectUnknown, Orphan, StageBusy
from registry.blobstore.disk import disk_io, orphans, stored_file
from registry.blobstore.disk.folders import (
    SHARDS,
    Folders,
    object_path,
    read_generation,
    write_generation,
)
from registry.blobstore.disk.growing_file import GrowingFile, GrowingSealedFile
from registry.blobstore.disk.staged_file import Shared, StagedFile, open_held
from registry.blobstore.locks import FleetLocks
from registry.blobstore.sealed.frames import resumable_at
from registry.blobstore.sealed.objects import SealedObject, unseal, unseal_cached
from registry.blobstore.sealed.shared_frames import SharedFrames
from registry.blobstore.staging import canonical_id

T = TypeVar("T")


class DiskFiles:
    """Keep blobs below `root`, in files of mode 0600 and folders of mode 0700.

    ::

        uploads/<upload id>                              staged bytes
        objects/<last two hex digits of id>/<object id>  objects; the 256 folders always exist
        orphans/<moment>.<kind>.<object id>              bytes without a row, kept for some days
        generation                                       the saved generation of the database

    An object's id is the id under which it was staged. A writer keeps its file locked (``flock``)
    while the file is open. So the orphan scan of any process of this machine skips uploads that
    arrive in a single request, which have no row yet. The lease in an upload session's row decides
    which process may write to the upload.
    """

    def __init__(
        self, root: Path, *, compresses: bool = False, locks: FleetLocks | None = None
    ) -> None:
        """Open the folders; with `compresses`, compress sealed objects if that saves space.

        With `locks`, processes of other machines share the folders.
        """
        self.compresses: Final = compresses
        self._locks = locks
        self._folders = Folders(root)
        self._shared = Shared(compresses=compresses)
        self._frames = SharedFrames()

    def close(self) -> None:
        """Release the folders; objects that were opened stay readable."""
        self._folders.close()

    def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> stored_file.StoredFile | SealedObject:
        stored = self._found(
            object_id, partial(stored_file.open_stored, size=None if data_key else size)
        )
        return (
            stored if data_key is None else unseal(stored, object_id, size, data_key, self._frames)
        )

    def open_cached(
        self, object_id: str, size: int | None, data_key: DataKey | None = None
    ) -> stored_file.StoredFile | SealedObject | None:
        """Open an object if the kernel has the needed file data in memory; never block.

        Otherwise, or if the object is absent, return None: then call `open`.
        """
        path = object_path(canonical_id(object_id))
        if data_key is None:
            return stored_file.open_cached(self._folders.objects, path, size)
        stored = stored_file.open_cached(self._folders.objects, path)
        return (
            None
            if stored is None
            else unseal_cached(stored, object_id, size, data_key, self._frames)
        )

    def open_staged(
        self, upload_id: str, data_key: DataKey | None = None
    ) -> stored_file.StoredFile | SealedObject | GrowingFile | GrowingSealedFile:
        name = canonical_id(upload_id)
        with disk_io.disk_errors():
            growing = GrowingFile.open(self._folders, name)
        if growing is None:
            return self.open(name, data_key=data_key)
        return growing if data_key is None else GrowingSealedFile(growing, name, data_key)

    def open_stored(self, object_id: str, stored_size: int) -> stored_file.ColdFile:
        return stored_file.ColdFile(
            self._found(object_id, partial(stored_file.open_stored, size=stored_size))
        )

    def check(self, object_id: str, stored_size: int) -> None:
        self._found(object_id, partial(stored_file.check_stored, size=stored_size))

    def check_cached(self, object_id: str, stored_size: int) -> bool:
        path = object_path(canonical_id(object_id))
        return stored_file.check_cached(self._folders.objects, path, stored_size)

    def stage(
        self, upload_id: str, algorithm: str | None = None, data_key: DataKey | None = None
    ) -> StagedFile:
        name = canonical_id(upload_id)
        with disk_io.disk_errors():
            with suppress(FileNotFoundError):
                os.stat(object_path(name), dir_fd=self._folders.objects)
                raise StageBusy(name)  # a commit would replace the object's bytes
            return StagedFile.create(self._folders, self._shared, name, algorithm, data_key)

    def resume(self, upload_id: str) -> StagedFile:
        name = canonical_id(upload_id)
        with disk_io.disk_errors():
            try:
                return StagedFile.take_up(self._folders, self._shared, name)
            except ObjectUnknown:
                if not orphans.take_back(self._folders, name):
                    raise
            return StagedFile.take_up(self._folders, self._shared, name)

    def resume_cached(self, upload_id: str) -> StagedFile | None:
        """Hold staged bytes again if the kernel has their inode in memory; never block.

        Otherwise, or if they are not in ``uploads``, return None: then call `resume`.

        Raise `StageBusy` or `StoreUnavailable` as `resume` does.
        """
        with disk_io.disk_errors():
            return StagedFile.take_up_cached(self._folders, self._shared, canonical_id(upload_id))

    def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        data_key: DataKey | None = None,
        source_key: DataKey | None = None,
    ) -> StagedFile:
        source = canonical_id(source_id)
        staged = self.stage(upload_id, data_key=data_key)
        try:
            with disk_io.disk_errors():
                orphans.take_back(self._folders, source)
            staged.copy_from(source, size, source_key)
        except BaseException:
            staged.discard()
            raise
        return staged

    def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int:
        name = canonical_id(upload_id)
        places = ((self._folders.uploads, name), (self._folders.objects, object_path(name)))
        with disk_io.disk_errors():
            for folder, path in (*places, places[0]):  # the file may move between two of these
                with suppress(FileNotFoundError):
                    if is_sealed:
                        return _resumable_at(folder, path, received)
                    return min(received, os.stat(path, dir_fd=folder).st_size)
            if not orphans.take_back(self._folders, name):
                return 0
        return self.resumable(name, received, is_sealed=is_sealed)

    def discard(self, upload_id: str) -> None:
        name = canonical_id(upload_id)
        with disk_io.disk_errors(), suppress(FileNotFoundError):
            descriptor = open_held(self._folders.uploads, name)
            with disk_io.closing_fd(descriptor):
                os.unlink(name, dir_fd=self._folders.uploads)

    def check_room(self) -> None:
        with disk_io.disk_errors():
            disk_io.check_room(self._folders.uploads, 1)
            disk_io.check_writable(self._folders.uploads)

    def partitions(self) -> Sequence[str]:
        """Return the names of the folders that objects are in, one for each pair of hex digits."""
        return SHARDS

    def list_objects(self, partition: str | None = None) -> Iterator[ListedBytes]:
        """Yield every object, folder by folder; skip files that are not named by an object id."""
        for name in SHARDS if partition is None else (partition,):
            yield from _entries(name, self._folders.objects)

    def list_ids(self, partition: str) -> Iterator[str]:
        with disk_io.disk_errors():
            yield from filter(is_canonical_uuid, disk_io.names_in(partition, self._folders.objects))

    def list_staged(self) -> Iterator[ListedBytes]:
        """Yield the staged bytes of each upload."""
        yield from _entries("uploads", self._folders.root)

    @contextmanager
    def deleting(self) -> Iterator[None]:
        """Prevent backups from beginning during the block (`BlockingFiles.deleting`)."""
        with ExitStack() as held:
            if self._locks is not None:
                held.enter_context(self._locks.deleting())
            held.enter_context(disk_io.disk_errors())
            held.enter_context(deleting(self._folders.root))
            yield

    def delete(self, object_id: str) -> None:
        """Delete an object's bytes; do nothing if it is absent.

        The folder is not flushed: if a power loss undoes the deletion, the object has no row, and
        the orphan scan finds it.
        """
        path = object_path(canonical_id(object_id))
        with disk_io.disk_errors(), suppress(FileNotFoundError):
            os.unlink(path, dir_fd=self._folders.objects)

    def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        name = canonical_id(object_id)
        with disk_io.disk_errors():
            return orphans.set_aside(self._folders, name, moment, staged_too=staged_too)

    def list_orphans(self) -> Iterator[Orphan]:
        """Yield every orphan."""
        with disk_io.disk_errors():
            yield from orphans.listed(self._folders)

    def take_back(self, object_id: str) -> bool:
        with disk_io.disk_errors():
            return orphans.take_back(self._folders, canonical_id(object_id))

    def delete_orphan(self, orphan: Orphan) -> None:
        """Delete the bytes of an orphan; do nothing if it is absent."""
        with self.deleting():
            orphans.delete(self._folders, orphan)

    @contextmanager
    def scan_alone(self) -> Iterator[bool]:
        """Hold the lock of orphan scans in the block; yield False if another process has it."""
        with disk_io.disk_errors():
            # A new descriptor, which owns the lock.
            folder = disk_io.open_folder("orphans", self._folders.root)
        with disk_io.closing_fd(folder), ExitStack() as held:
            is_alone = disk_io.try_lock(folder, fcntl.LOCK_EX)
            if is_alone and self._locks is not None:
                is_alone = held.enter_context(self._locks.scan_alone())
            yield is_alone

    def generation(self) -> str | None:
        """Return the saved generation of the database, or None if none is saved."""
        with disk_io.disk_errors():
            return read_generation(self._folders.root)

    def save_generation(self, generation: str) -> None:
        with disk_io.disk_errors():
            write_generation(self._folders.root, generation)

    def _found(self, object_id: str, call: Callable[[int, str], T]) -> T:
        """Return `call(folder, path)` for an object; if unknown, first move its orphan back."""
        path = object_path(canonical_id(object_id))
        try:
            return call(self._folders.objects, path)
        except ObjectUnknown:
            if not self.take_back(object_id):
                raise
        return call(self._folders.objects, path)


def _resumable_at(folder: int, path: str, received: int) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    with disk_io.closing_fd(descriptor):
        return resumable_at(descriptor, received)


def _entries(name: str, parent: int) -> Iterator[ListedBytes]:
    """Yield the files of a folder; skip files deleted meanwhile, and names that are not ids."""
    with (
        disk_io.disk_errors(),
        disk_io.closing_fd(disk_io.open_folder(name, parent)) as folder,
        os.scandir(folder) as entries,
    ):
        for entry in entries:
            if not is_canonical_uuid(entry.name):
                continue
            try:
                size = entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
            yield ListedBytes(entry.name, size)
