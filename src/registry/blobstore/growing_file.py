"""A staged file, read while a writer of this process or another appends to it."""

from __future__ import annotations

import os
from contextlib import suppress

from registry.blobstore.base import StagedDropped
from registry.blobstore.blocking import BlockingGrowing, Growth
from registry.blobstore.disk_io import disk_errors
from registry.blobstore.folders import Folders, object_path


class GrowingFile(BlockingGrowing):
    """A staged file. While its name is in ``uploads``, it may grow."""

    def __init__(self, folders: Folders, upload_id: str, descriptor: int) -> None:
        self._folders = folders
        self._upload_id = upload_id
        self.descriptor = descriptor
        self._is_open = True

    @classmethod
    def open(cls, folders: Folders, upload_id: str) -> GrowingFile | None:
        """Open a staged file, or return None if there is none."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileNotFoundError):
            return cls(folders, upload_id, os.open(upload_id, flags, dir_fd=folders.uploads))
        return None

    def look(self) -> Growth:
        """Return the size of the file, and whether it has become an object."""
        with disk_errors():
            # The file may move between two of these, but not twice: moving it needs the lock.
            for is_object in (False, True, False):
                if self._is_at(is_object=is_object):
                    return Growth(os.fstat(self.descriptor).st_size, is_object)
        raise StagedDropped(f"the upload {self._upload_id} was discarded")

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes that `look` has seen."""
        with disk_errors():
            found = os.pread(self.descriptor, count, offset)
        if len(found) < count:
            raise StagedDropped(f"the upload {self._upload_id} was cut off")
        return found

    def close(self) -> None:
        """Release the file; calling it again does nothing."""
        if self._is_open:
            self._is_open = False
            os.close(self.descriptor)

    def _is_at(self, *, is_object: bool) -> bool:
        folder = self._folders.objects if is_object else self._folders.uploads
        path = object_path(self._upload_id) if is_object else self._upload_id
        try:
            there = os.stat(path, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self.descriptor))
