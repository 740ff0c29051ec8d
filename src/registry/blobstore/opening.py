"""Open and close the blob store of the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from registry.blobstore.base import BlobStore
from registry.blobstore.disk_files import DiskFiles
from registry.blobstore.filesystem import FilesystemStore
from registry.blobstore.threads import Threads
from registry.settings import Settings


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[BlobStore]:
    """Open the store of the blobs for the block; create its folders if they are missing.

    Raises:
        OSError: a folder cannot be created or opened.

    """
    async with _opened(settings.blobs, settings) as store:
        yield store


@asynccontextmanager
async def open_bucket_store(settings: Settings) -> AsyncIterator[FilesystemStore]:
    """Open the store of the bytes of buckets for the block, as `open_store`."""
    async with _opened(settings.buckets, settings) as store:
        yield store


@asynccontextmanager
async def _opened(root: Path, settings: Settings) -> AsyncIterator[FilesystemStore]:
    def opened() -> FilesystemStore:
        return FilesystemStore(root, compresses=settings.compression == "on")

    with closing(Threads("opening")) as in_thread:
        store = await in_thread(opened, undo=FilesystemStore.close)
        try:
            yield store
        finally:
            await in_thread(store.close)


def make_folders(settings: Settings) -> None:
    """Create the folders of the stores before the workers open it. Blocks.

    Raises:
        OSError: as `open_store`.

    """
    DiskFiles(settings.blobs).close()
    DiskFiles(settings.buckets).close()
