"""Open the blob store that settings name, and close it."""

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
    """Open the store for the block; make its folders if they are missing.

    Raises:
        OSError: the folder of blobs cannot be made or opened.

    """
    store = await in_thread(FilesystemStore, settings.blobs, undo=FilesystemStore.close)
    try:
        yield store
    finally:
        await in_thread(store.close)


def make_folders(settings: Settings) -> None:
    """Make the folders of the store, once, before any worker opens it. Blocks.

    Raises:
        OSError: as `open_store`.

    """
    DiskFiles(settings.blobs).close()
