"""The stores that a backup reads and a restoration fills: blobs and buckets, on disk or in S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cloudcore.objects.stored_rows import NamedObject
from registry.backup.copying import BucketToFolder, Copier, FolderToBucket, FolderToFolder
from registry.backup.files import make_shards
from registry.backup.manifest import OBJECTS
from registry.blobstore.backups import deletions_held
from registry.blobstore.base import ObjectDamaged, ObjectUnknown
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.folders import SHARDS, forget_generation
from registry.blobstore.locks import fleet_locks, store_locks
from registry.blobstore.opening import BUCKETS, make_folders, open_bucket
from registry.blobstore.s3 import bucket_layout
from registry.blobstore.s3.files import S3Files
from registry.settings.settings import Settings

if TYPE_CHECKING:
    from cloudcore.db.postgresql_locks import HeldLock

_USED: Final = (
    bucket_layout.OBJECTS,
    bucket_layout.STAGED,
    bucket_layout.ORPHANS,
    bucket_layout.GENERATION,
)


class HoldLost(Exception):
    """Other nodes may have deleted blobs while the backup was copying them."""

    def __init__(self) -> None:
        super().__init__(
            "the connection to the database broke by which deletions were held, so other nodes may"
            " have deleted blobs meanwhile: take the backup again, which copies only what is new"
        )


class DiskStore:
    """A store of objects in files below a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def close(self) -> None:
        """Release the folders, if they were opened."""
        if "_files" in self.__dict__:
            self._files.close()

    @cached_property
    def _files(self) -> DiskFiles:
        return DiskFiles(self._root)

    def copier_to(self, target: Path, *, links: bool = False) -> Copier:
        """Return a copier of objects to another folder."""
        objects = self._root / OBJECTS
        return FolderToFolder(objects, target, links=links, prepare=self._take_back)

    def copier_from(self, source: Path) -> Copier:
        """Return a copier of objects from another folder; create this store's shard folders."""
        make_shards(self._root / OBJECTS, SHARDS)
        return FolderToFolder(source, self._root / OBJECTS)

    def is_used(self) -> bool:
        """Return False: the caller checks that the data folder is empty."""
        return False

    def generation(self) -> str | None:
        """Return the saved generation of the database (`database_rollback`), or None."""
        return self._files.generation()

    def forget_generation(self) -> None:
        """Delete the saved generation, so that the next database is accepted."""
        forget_generation(self._root)

    def _take_back(self, row: NamedObject) -> None:
        """Move an object back if it was set aside as an orphan, as a pull would do."""
        with suppress(ObjectUnknown, ObjectDamaged):  # copying reports them
            self._files.check(row.stored_id, row.stored_size)


class BucketStore:
    """Objects of a bucket. Orphans stay at their key, so they need not be moved back."""

    def __init__(self, files: S3Files) -> None:
        self._files = files

    def close(self) -> None:
        """Release the connections."""
        self._files.close()

    def copier_to(self, target: Path, *, links: bool = False) -> Copier:  # noqa: ARG002 - refused
        """Return a copier of objects to a folder."""
        return BucketToFolder(self._files, target)

    def copier_from(self, source: Path) -> Copier:
        """Return a copier of objects from a folder."""
        return FolderToBucket(source, self._files)

    def is_used(self) -> bool:
        """Return True if the bucket has any key that a store writes."""
        bucket = self._files.bucket
        return any(True for prefix in _USED for _ in bucket.listed(prefix))

    def generation(self) -> str | None:
        """Return the saved generation of the database (`database_rollback`), or None."""
        return self._files.generation()

    def forget_generation(self) -> None:
        """Delete the saved generation, so that the next database is accepted."""
        self._files.bucket.delete_all([bucket_layout.GENERATION])


class ObjectStores(NamedTuple):
    """The object stores of a registry: blobs, and pieces of buckets. Their calls block."""

    blobs: DiskStore | BucketStore
    pieces: DiskStore | BucketStore
    """The bytes of buckets."""


@contextmanager
def open_object_stores(settings: Settings) -> Iterator[ObjectStores]:
    """Open the configured object stores for the block.

    Raise `SettingsError` if the settings name a bucket, but boto3 is not installed.
    """
    with ExitStack() as opened:

        def in_bucket(prefix: str) -> BucketStore:
            files = S3Files(open_bucket(settings, prefix), folder=settings.data)
            return opened.enter_context(closing(BucketStore(files)))

        def on_disk(root: Path) -> DiskStore:
            return opened.enter_context(closing(DiskStore(root)))

        if settings.store.store_s3_bucket:
            yield ObjectStores(in_bucket(""), in_bucket(BUCKETS))
        else:
            yield ObjectStores(on_disk(settings.blobs), on_disk(settings.buckets))


@contextmanager
def deletions_stopped(settings: Settings, patience_seconds: float) -> Iterator[Callable[[], None]]:
    """Hold the deletions of all nodes during the block; yield a check that they are still held.

    The check raises `HoldLost` if they are not. Raise `HeldByAnother` if other processes hold the
    lock of deletions for longer than `patience_seconds`.
    """
    with ExitStack() as held:
        lock: HeldLock | None = None
        if settings.store.store_s3_bucket:
            shared = store_locks(settings.database, settings.data, "blobs")
            lock = held.enter_context(shared.deletions_held(patience_seconds))
        else:
            make_folders(settings)
            for root in (settings.blobs, settings.buckets):
                held.enter_context(deletions_held(root, patience_seconds))
            if (fleet := fleet_locks(settings.database, "blobs")) is not None:
                lock = held.enter_context(fleet.deletions_held(patience_seconds))
        yield lambda: _check(lock)


def _check(lock: HeldLock | None) -> None:
    """Raise `HoldLost` if the lock was lost; locks of files (None) cannot be lost."""
    if lock is None:
        return
    from cloudcore.db.postgresql_locks import LockLost  # noqa: PLC0415 - the driver

    try:
        lock.check()
    except LockLost:
        raise HoldLost from None
