"""Open and close the blob store of the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from registry.blobstore.base import BlobStore
from registry.blobstore.disk_files import DiskFiles
from registry.blobstore.filesystem import FilesystemStore
from registry.blobstore.threads import in_thread
from registry.settings import Settings


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[BlobStore]:
    """Open the store for the block; create its folders if they are missing.

    Raises:
        OSError: a folder cannot be created or opened.

    """

    def opened() -> FilesystemStore:
        return FilesystemStore(settings.blobs, compresses=settings.compression == "on")

    store = await in_thread(opened, undo=FilesystemStore.close)
    try:
        yield store
    finally:
        await in_thread(store.close)


def make_folders(settings: Settings) -> None:
    """Create the folders of the store before the workers open it. Blocks.

    Raises:
        OSError: as `open_store`.

    """
    DiskFiles(settings.blobs).close()
