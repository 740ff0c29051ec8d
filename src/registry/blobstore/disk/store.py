"""The blob store on a local disk: files, opened and moved in threads."""

# ruff: noqa: D102 - methods without a docstring are documented in `blobstore.store`

from __future__ import annotations

from pathlib import Path
from typing import Final

from cloudcore.threads import Threads
from registry.blobstore.base import DataKey, OpenObject
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.locks import FleetLocks
from registry.blobstore.reading import ThreadedObject
from registry.blobstore.store import BlobStore, Staged

_LOOK_SECONDS: Final = 0.02


class FilesystemStore(BlobStore):
    """Keeps blobs below `root` (`DiskFiles`).

    A file whose inode is in the kernel's memory is opened on the event loop. That takes a few
    microseconds and does not wait; a thread would cost more than the rest of a small response.
    """

    def __init__(
        self,
        root: Path,
        *,
        look_seconds: float = _LOOK_SECONDS,
        compresses: bool = False,
        locks: FleetLocks | None = None,
    ) -> None:
        """Open all folders, and create the missing ones. Blocks.

        With `compresses`, compress sealed objects if that saves space. `locks` coordinate machines
        that share the folders.
        """
        self.files: Final = DiskFiles(root, compresses=compresses, locks=locks)
        super().__init__(self.files, Threads("files"), look_seconds)

    async def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> OpenObject:
        stored = self.files.open_cached(object_id, size, data_key)
        if stored is not None:
            return ThreadedObject(stored, self._run)
        return await super().open(object_id, size, data_key)

    def check_cached(self, object_id: str, stored_size: int) -> bool:
        return self.files.check_cached(object_id, stored_size)

    async def resume(self, upload_id: str) -> Staged:
        staged = self.files.resume_cached(upload_id)
        return (
            await super().resume(upload_id) if staged is None else self._staged(staged, upload_id)
        )
