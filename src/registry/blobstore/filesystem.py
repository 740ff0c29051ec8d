"""The blob store on a local disk: one file an object, found by descriptor and id alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from registry.blobstore.base import BlobStore, ObjectUnknown, StageBusy, StoredObject
from registry.blobstore.folders import SHARDS, Folders, object_path, shard
from registry.blobstore.medium import flush_folder, medium_errors, open_folder
from registry.blobstore.staged_file import StagedFile, open_held
from registry.blobstore.staging import HasherCache, canonical_id, is_canonical_id
from registry.blobstore.stored_file import StoredFile, open_stored


class FilesystemStore:
    """Keeps blobs below `root`, in files of mode 0600 and folders of mode 0700.

    ::

        uploads/<upload id>                              staged bytes
        objects/<last two hex digits of id>/<object id>  objects; the 256 folders always exist

    An object's id is the id of the upload it came from. A writer holds its file through
    ``flock``, which excludes every process of this machine; a network file system that keeps such
    locks by process is not fit for `root`.
    """

    def __init__(self, root: Path) -> None:
        self._folders = Folders(root)
        self._hashers = HasherCache()

    def close(self) -> None:
        """Release the folders; the store is of no use afterwards, what it opened still is."""
        self._folders.close()

    def open(
        self, object_id: str, start: int = 0, stop: int | None = None, size: int | None = None
    ) -> StoredFile:
        """Open bytes ``[start, stop)`` of an object (`BlobReader.open`).

        An object shorter than `stop` is damaged: `StoreUnavailable`, unless `size` is given.
        """
        path = object_path(canonical_id(object_id))
        return open_stored(self._folders.objects, path, start, stop, size)

    def stage(self, upload_id: str, algorithm: str | None = None) -> StagedFile:
        """Begin to stage bytes under a new id (`BlobWriter.stage`)."""
        name = canonical_id(upload_id)
        with medium_errors():
            if self._has_object(name):
                raise StageBusy(name)  # a commit would replace the object's bytes
            return StagedFile.create(self._folders, self._hashers, name, algorithm)

    def resume(self, upload_id: str) -> StagedFile:
        """Take up staged bytes, or an object never made a blob (`BlobWriter.resume`)."""
        with medium_errors():
            return StagedFile.take_up(self._folders, self._hashers, canonical_id(upload_id))

    def discard(self, upload_id: str) -> None:
        """Delete what is staged under an id (`BlobWriter.discard`)."""
        name = canonical_id(upload_id)
        with medium_errors(), suppress(FileNotFoundError):
            descriptor = open_held(self._folders.uploads, name)
            try:
                os.unlink(name, dir_fd=self._folders.uploads)
            finally:
                os.close(descriptor)

    def remove_duplicate(self, object_id: str) -> None:
        """Delete an object just committed for which no row was written."""
        self.delete(object_id)

    def replace(self, object_id: str, new_id: str) -> None:
        """Let an object have the bytes of one just committed (`BlobWriter.replace`).

        The new bytes were flushed when they were committed; here both entries are, the new one
        first. Two entries of one file, after a power loss, would let whoever removes the bytes
        without a row cut those of the object.
        """
        name, new = canonical_id(object_id), canonical_id(new_id)
        with medium_errors():
            try:
                os.rename(
                    object_path(new),
                    object_path(name),
                    src_dir_fd=self._folders.objects,
                    dst_dir_fd=self._folders.objects,
                )
            except FileNotFoundError as error:
                raise ObjectUnknown(new) from error
            flush_folder(shard(name), self._folders.objects)
            flush_folder(shard(new), self._folders.objects)

    def list_objects(self, shard: int | None = None) -> Iterator[StoredObject]:
        """Yield every object, folder by folder; what is no object's name is left out."""
        for number in range(SHARDS) if shard is None else (shard,):
            yield from _entries(f"{number:02x}", self._folders.objects)

    def list_staged(self) -> Iterator[StoredObject]:
        """Yield everything staged, under its upload id."""
        yield from _entries("uploads", self._folders.root)

    def delete(self, object_id: str) -> None:
        """Delete an object's bytes; absent is success.

        The folder is not flushed: a deletion that a power loss undoes leaves an object without a
        row, which the next sweep deletes again.
        """
        path = object_path(canonical_id(object_id))
        with medium_errors(), suppress(FileNotFoundError):
            os.unlink(path, dir_fd=self._folders.objects)

    def _has_object(self, object_id: str) -> bool:
        try:
            os.stat(object_path(object_id), dir_fd=self._folders.objects)
        except FileNotFoundError:
            return False
        return True


def _entries(name: str, parent: int) -> Iterator[StoredObject]:
    """Yield the files of a folder; one that vanishes meanwhile is left out."""
    with medium_errors():
        folder = open_folder(name, parent)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not is_canonical_id(entry.name):
                        continue
                    try:
                        size = entry.stat(follow_symlinks=False).st_size
                    except FileNotFoundError:
                        continue
                    yield StoredObject(entry.name, size)
        finally:
            os.close(folder)


if TYPE_CHECKING:
    _: type[BlobStore] = FilesystemStore
