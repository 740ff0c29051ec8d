"""The stores of a backup or a restoration: blobs and buckets, each on disk or in S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from cloudcore.db.opening import is_postgresql
from cloudcore.objects.book import NamedObject
from registry.backup.copying import BetweenFolders, Copying, FromBucket, ToBucket
from registry.backup.files import make_shards
from registry.backup.manifest import OBJECTS
from registry.blobstore.backups import deletions_held
from registry.blobstore.base import ObjectDamaged, ObjectUnknown
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.folders import SHARDS, forget_generation
from registry.blobstore.locks import HeldDeletions, fleet_locks, store_locks
from registry.blobstore.opening import BUCKETS, make_folders, open_bucket
from registry.blobstore.s3 import bucket_layout
from registry.blobstore.s3.files import S3Files
from registry.settings.settings import Settings

_USED: Final = (
    bucket_layout.OBJECTS,
    bucket_layout.STAGED,
    bucket_layout.ORPHANS,
    bucket_layout.GENERATION,
)


class HoldLost(Exception):
    """Other nodes may have deleted blobs while they were copied."""

    def __init__(self) -> None:
        super().__init__(
            "the connection to the database broke by which deletions were held, so other nodes may"
            " have deleted blobs meanwhile: take the backup again, which copies only what is new"
        )


class Place(Protocol):
    """The objects of one store. Its calls block."""

    def out_to(self, target: Path, *, links: bool = False) -> Copying:
        """Return the way of objects to a folder."""
        ...

    def in_from(self, source: Path) -> Copying:
        """Return the way of objects from a folder."""
        ...

    def is_used(self) -> bool:
        """Return True if there are objects in a bucket; a folder is looked at elsewhere."""
        ...

    def generation(self) -> str | None:
        """Return the noted generation, or None (`registry.gc.generations`)."""
        ...

    def forget_generation(self) -> None:
        """Delete the note of it: the next database is the right one."""
        ...


class Places(NamedTuple):
    """The two places of a registry."""

    blobs: Place
    pieces: Place
    """The bytes of buckets."""


class OnDisk:
    """Objects in files below a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def close(self) -> None:
        """Release the folders, if they were opened."""
        if "_files" in self.__dict__:
            self._files.close()

    @cached_property
    def _files(self) -> DiskFiles:
        return DiskFiles(self._root)

    def out_to(self, target: Path, *, links: bool = False) -> Copying:
        """Return the way to another folder (`Place.out_to`)."""
        objects = self._root / OBJECTS
        return BetweenFolders(objects, target, links=links, prepare=self._take_back)

    def in_from(self, source: Path) -> Copying:
        """Return the way from another folder; create the folders of objects."""
        make_shards(self._root / OBJECTS, SHARDS)
        return BetweenFolders(source, self._root / OBJECTS)

    def is_used(self) -> bool:
        """Return False (`Place.is_used`)."""
        return False

    def generation(self) -> str | None:
        """Return the noted generation, or None."""
        return self._files.generation()

    def forget_generation(self) -> None:
        """Delete the note of it."""
        forget_generation(self._root)

    def _take_back(self, row: NamedObject) -> None:
        """Put an object back if it was set aside as an orphan, as a pull does."""
        try:
            self._files.check(row.stored_id, row.stored_size)
        except (ObjectUnknown, ObjectDamaged):
            return  # copying tells


class InBucket:
    """Objects of a bucket. Orphans are where all are, so none has to be put back."""

    def __init__(self, files: S3Files) -> None:
        self._files = files

    def close(self) -> None:
        """Release the connections."""
        self._files.close()

    def out_to(self, target: Path, *, links: bool = False) -> Copying:  # noqa: ARG002 - refused
        """Return the way to a folder (`Place.out_to`)."""
        return FromBucket(self._files, target)

    def in_from(self, source: Path) -> Copying:
        """Return the way from a folder (`Place.in_from`)."""
        return ToBucket(source, self._files)

    def is_used(self) -> bool:
        """Return True if there are keys of a store."""
        bucket = self._files.bucket
        return any(True for prefix in _USED for _ in bucket.listed(prefix))

    def generation(self) -> str | None:
        """Return the noted generation, or None."""
        return self._files.generation()

    def forget_generation(self) -> None:
        """Delete the note of it."""
        self._files.bucket.delete_all([bucket_layout.GENERATION])


@contextmanager
def opened_places(settings: Settings) -> Iterator[Places]:
    """Give the block the places of the settings.

    Raises:
        SettingsError: they name a bucket, and boto3 is not installed.

    """
    with ExitStack() as opened:

        def in_bucket(prefix: str) -> InBucket:
            files = S3Files(open_bucket(settings, prefix), folder=settings.data)
            return opened.enter_context(closing(InBucket(files)))

        def on_disk(root: Path) -> OnDisk:
            return opened.enter_context(closing(OnDisk(root)))

        if settings.store.store_s3_bucket:
            yield Places(in_bucket(""), in_bucket(BUCKETS))
        else:
            yield Places(on_disk(settings.blobs), on_disk(settings.buckets))


@contextmanager
def deletions_stopped(settings: Settings, patience_seconds: float) -> Iterator[Callable[[], None]]:
    """Hold the deletions of all nodes in the block; give what checks that they still are.

    Raises:
        HeldByAnother: another process holds them.

    """
    with ExitStack() as held:
        locks: list[HeldDeletions] = []
        if settings.store.store_s3_bucket:
            shared = store_locks(settings.database, settings.data, "blobs")
            locks.append(held.enter_context(shared.deletions_held(patience_seconds)))
        else:
            make_folders(settings)
            for root in (settings.blobs, settings.buckets):
                held.enter_context(deletions_held(root, patience_seconds))
            if (fleet := fleet_locks(settings.database, "blobs")) is not None:
                locks.append(held.enter_context(fleet.deletions_held(patience_seconds)))
        yield lambda: _check(settings, locks)


def _check(settings: Settings, locks: list[HeldDeletions]) -> None:
    """Raise HoldLost if one of the locks is lost."""
    if not is_postgresql(settings.database):
        return
    from cloudcore.db.postgresql_locks import LockLost  # noqa: PLC0415 - the driver

    try:
        for each in locks:
            each.check()
    except LockLost:
        raise HoldLost from None
