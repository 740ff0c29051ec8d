"""Open the stores that the settings name: on disk, or in a bucket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Final

from cloudcore.serving.counters import Count, count_nothing
from cloudcore.threads import Threads
from registry.blobstore.base import BlobLinks
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.locks import fleet_locks, store_locks
from registry.blobstore.s3.bucket import BotoMissing, Bucket
from registry.blobstore.s3.disk_cache import DiskCache
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.presigned_urls import PresignedLinks
from registry.blobstore.s3.store import S3Store
from registry.blobstore.store import BlobStore
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

FileStore = FilesystemStore | S3Store
"""A store with its blocking `files`, which bulk threads call."""
BUCKETS: Final = "buckets/"
"""Prefix of the keys of buckets' bytes, after the key prefix in the settings."""


@asynccontextmanager
async def open_store(settings: Settings, count: Count = count_nothing) -> AsyncIterator[BlobStore]:
    """Open the configured store of blobs for the block; create its folders if they are missing.

    `count` counts the uses of the disk cache, and may be called in any thread.

    Raise `OSError` if a folder cannot be created or opened, `SettingsError` if the store needs a
    package that is not installed.
    """
    async with _opened(settings, "blobs", settings.blobs, "", count) as store:
        yield store


@asynccontextmanager
async def open_bucket_store(
    settings: Settings, count: Count = count_nothing
) -> AsyncIterator[FileStore]:
    """Open the store with the bytes of buckets, as `open_store` does."""
    async with _opened(settings, "buckets", settings.buckets, BUCKETS, count) as store:
        yield store


@contextmanager
def open_links(settings: Settings, store: BlobStore) -> Iterator[BlobLinks | None]:
    """Yield the maker of presigned URLs for an open store; None if redirects are off."""
    if settings.store.store_s3_redirects != "on" or not isinstance(store, S3Store):
        yield None
        return
    with closing(PresignedLinks(store)) as links:
        yield links


def _make(settings: Settings, name: str, root: Path, prefix: str, count: Count) -> FileStore:
    """Open the store `name`: below the folder `root`, or in the bucket below `prefix`. Blocks."""
    compresses = settings.compression == "on"
    if not settings.store.store_s3_bucket:
        locks = fleet_locks(settings.database, name)
        return FilesystemStore(root, compresses=compresses, locks=locks)
    most = settings.store.cache_bytes
    files = S3Files(
        open_bucket(settings, prefix),
        compresses=compresses,
        locks=store_locks(settings.database, settings.data, name),
        cache=DiskCache(settings.cache, most, count) if most else None,
        folder=settings.data,
    )
    return S3Store(files)


def open_bucket(settings: Settings, prefix: str = "") -> Bucket:
    """Return the bucket in the settings; raise `SettingsError` if boto3 is not installed."""
    try:
        return Bucket(settings.store, prefix)
    except BotoMissing as error:
        raise SettingsError(f"store_s3_bucket: {error}") from error


def backup_times_folder(settings: Settings) -> Path:
    """Return the folder with records of backup times: `data` with a bucket, else `blobs`."""
    return settings.data if settings.store.store_s3_bucket else settings.blobs


@asynccontextmanager
async def _opened(
    settings: Settings, name: str, root: Path, prefix: str, count: Count
) -> AsyncIterator[FileStore]:
    """Open a store for the block, in a thread (`_make`)."""
    with closing(Threads("opening")) as in_thread:
        of = settings, name, root, prefix, count
        store = await in_thread(_make, *of, undo=lambda store: store.close())
        try:
            yield store
        finally:
            await in_thread(store.close)


def make_folders(settings: Settings) -> None:
    """Create the folders of the stores before worker processes open them. Blocks.

    Raise `OSError` as `open_store` does.
    """
    if not settings.store.store_s3_bucket:
        DiskFiles(settings.blobs).close()
        DiskFiles(settings.buckets).close()
