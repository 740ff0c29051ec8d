"""Measure the bytes that images, repositories and accounts use, share and would free.

Only blobs count; manifests are rows of the database. A deletion frees nothing at once: the
collector removes the blobs later and, if the account has an undelete period, after its end.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database
from registry.metadata import storage_usage as storage
from registry.metadata.collector.collection import measure_stage
from registry.metadata.repositories.repository import VisibleRepository
from registry.metadata.storage_usage import MeasuredObject, NamedRepository, ObjectUse
from registry.services.images.details import get_manifest_row
from registry.services.images.index_deletion import read_division

_ObjectList = Callable[[Connection, str, str, int], list[MeasuredObject]]

_SLICE: Final = 500
"""Links in one read, which takes some milliseconds."""
_FIRST: Final = 10
"""Objects in the first read, when the number of links per object is unknown."""
_TOMBSTONES: Final = 100
"""Deleted images in one read."""


class ImageStorage(NamedTuple):
    """The storage of one image; that of an index includes everything under it."""

    size_bytes: int
    """The size of its distinct blobs, including those of all its descendants."""
    exclusive_bytes: int
    """Freed by deleting it with the children that nothing else needs, as `images.index_deletion`
    determines them: the size of the blobs that no other manifest of the account references."""
    freed_bytes: int
    """Freed by deleting it alone; for an index, its children stay and hold all the blobs."""
    restorable_bytes: int
    """The part of `exclusive_bytes` that restorable images or repositories also reference."""
    unused_digests: Sequence[str]
    """Digests of the manifests under it that nothing else needs, each after all its parents."""

    @property
    def shared_bytes(self) -> int:
        """Return the bytes that other manifests need too."""
        return self.size_bytes - self.exclusive_bytes


class RepositoryStorage(NamedTuple):
    """The storage of one repository."""

    logical_bytes: int = 0
    """The size of its images without deduplication."""
    size_bytes: int = 0
    """The size of its distinct blobs."""
    exclusive_bytes: int = 0
    """Freed by deleting it: the size of the blobs that no other repository of the account needs."""

    @property
    def shared_bytes(self) -> int:
        """Return the bytes that other repositories need too."""
        return self.size_bytes - self.exclusive_bytes


class StorageUsage(NamedTuple):
    """The storage of an account.

    ``stored = live + restorable + pending``, where `live_bytes` is the size of `unique_bytes` on
    disk.
    """

    logical_bytes: int
    """The size of all images without deduplication. An index counts as its images."""
    unique_bytes: int
    """The size of the distinct blobs of all images."""
    stored_bytes: int
    """The size on disk of all the account's blobs; unfinished uploads are not blobs yet."""
    restorable_bytes: int
    """The size on disk of the blobs that only restorable images or repositories need."""
    pending_sweep_bytes: int
    """The size on disk of the blobs that nothing needs. The collector removes them, except those of
    a push in progress."""
    as_of: int
    """The start of the measurement; changes during it may or may not be counted."""
    repositories: Sequence[tuple[NamedRepository, RepositoryStorage]]
    """Sorted by `exclusive_bytes`, the largest first."""

    @property
    def dedup_ratio(self) -> float:
        """Return `logical_bytes` divided by `unique_bytes`, or 1 for an empty account."""
        return round(self.logical_bytes / self.unique_bytes, 4) if self.unique_bytes else 1.0

    @property
    def live_bytes(self) -> int:
        """Return the size on disk of the blobs that images need."""
        return self.stored_bytes - self.restorable_bytes - self.pending_sweep_bytes

    @property
    def compression_saved_bytes(self) -> int:
        """Return how many bytes fewer than `unique_bytes` are on disk; sealing takes a few more."""
        return max(0, self.unique_bytes - self.live_bytes)


def measure_image(
    tx: Connection, found: VisibleRepository, reference: str, now: int
) -> ImageStorage:
    """Return the storage of an image, or raise ManifestUnknown.

    The cost grows with its descendants and blobs.
    """
    account_id, repository_id = found.repository.account_id, found.repository.id
    manifest = get_manifest_row(tx, found, reference)
    deleted, kept = read_division(tx, repository_id, manifest.id, now)
    ids = [each.id for each in deleted]
    every = [*ids, *(each.id for each, _ in kept)]
    whole = storage.sum_blobs_of(tx, account_id, repository_id, every, now)
    if len(every) == 1:
        return ImageStorage(
            whole.size_bytes,
            whole.exclusive_bytes,
            whole.exclusive_bytes,
            whole.restorable_bytes,
            unused_digests=(),
        )
    together = storage.sum_blobs_of(tx, account_id, repository_id, ids, now)
    alone = storage.sum_blobs_of(tx, account_id, repository_id, [manifest.id], now)
    return ImageStorage(
        whole.size_bytes,
        together.exclusive_bytes,
        alone.exclusive_bytes,
        together.restorable_bytes,
        unused_digests=[each.digest for each in deleted[1:]],
    )


async def measure_repository(
    database: Database, account_id: str, repository_id: str
) -> RepositoryStorage:
    """Return the storage of a repository; the cost grows with its blobs.

    Each slice is a transaction of its own, so that other requests run in between.
    """
    sums = RepositoryStorage()
    after: str | None = ""
    while after is not None:
        part = await database.read(storage.sum_links, account_id, repository_id, after, _SLICE)
        sums = RepositoryStorage(
            sums.logical_bytes + part.logical_bytes,
            sums.size_bytes + part.size_bytes,
            sums.exclusive_bytes + part.exclusive_bytes,
        )
        after = part.last if part.rows == _SLICE else None
        await _yield()
    return sums


async def measure_restorable(
    database: Database, account_id: str, repository_id: str, now: int
) -> int:
    """Return the bytes that only restorable images of a repository need.

    The cost grows with the number of its restorable images. They are read in slices, as by
    `measure_repository`.
    """
    sizes: dict[str, int] = {}
    after = (-1, "")
    while page := await database.read(
        storage.list_tombstone_ids, repository_id, now, after, _TOMBSTONES
    ):
        ids = [tombstone_id for _, tombstone_id in page]
        sizes |= await database.read(storage.deleted_objects, account_id, ids)
        after = page[-1]
        await _yield()
    return sum(sizes.values())


async def measure_account(database: Database, account_id: str, now: int) -> StorageUsage:
    """Return the storage of an account.

    It reads each object and each link once: about 1 s per 100,000. Each slice is a transaction of
    its own, and other requests run in between, so the result is not of a single moment.
    """
    sums = _Sums()
    after, limit = "", min(_FIRST, _SLICE)
    read = partial(_read_slice, storage.list_objects)
    while (part := await database.read(read, account_id, now, after, limit)).objects:
        sums.add(part)
        after = part.objects[-1].digest
        # Base layers may be in every repository: read as many objects as have about `_SLICE` links.
        limit = max(1, len(part.objects) * _SLICE // max(len(part.objects), len(part.uses)))
        await _yield()
    after = ""
    read = partial(_read_slice, storage.list_replaced_objects)
    while (part := await database.read(read, account_id, now, after, _FIRST)).objects:
        sums.add(part)
        after = part.objects[-1].id
        await _yield()
    measured = [
        (each, RepositoryStorage(*sums.repositories.get(each.id, ())))
        async for each in _repositories(database, account_id)
    ]
    quarantined = await database.read(measure_stage, account_id, "quarantined")
    return StorageUsage(
        logical_bytes=sum(each.logical_bytes for _, each in measured),
        unique_bytes=sums.unique_bytes,
        stored_bytes=sums.stored_bytes + quarantined.stored_bytes,
        restorable_bytes=sums.restorable_bytes,
        pending_sweep_bytes=sums.pending_bytes + quarantined.stored_bytes,
        as_of=now,
        repositories=sorted(measured, key=lambda pair: (-pair[1].exclusive_bytes, pair[0].name)),
    )


class _Slice(NamedTuple):
    """Some of an account's objects, with their links."""

    objects: Sequence[MeasuredObject]
    uses: Sequence[ObjectUse]
    restorable: Collection[str]
    """The ids of those without a use that a restorable image or repository needs."""


def _read_slice(
    read: _ObjectList, tx: Connection, account_id: str, now: int, after: str, limit: int
) -> _Slice:
    objects = read(tx, account_id, after, limit)
    uses = storage.uses_of(tx, account_id, [each.id for each in objects])
    used = {use.object_id for use in uses}
    unused = [each.id for each in objects if each.id not in used]
    return _Slice(objects, uses, storage.restorable_of(tx, account_id, unused, now))


@dataclass
class _Sums:
    """The sums over the slices of an account's objects."""

    unique_bytes: int = 0
    stored_bytes: int = 0
    restorable_bytes: int = 0
    pending_bytes: int = 0
    repositories: defaultdict[str, list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0, 0])
    )
    """The fields of `RepositoryStorage`, by the repository's id."""

    def add(self, part: _Slice) -> None:
        """Add a slice."""
        uses = Counter(use.object_id for use in part.uses)
        for each in part.objects:
            self.stored_bytes += each.stored_size
            if each.id in uses:
                self.unique_bytes += each.size
            elif each.id in part.restorable:
                self.restorable_bytes += each.stored_size
            else:
                self.pending_bytes += each.stored_size
        for object_id, repository_id, size, manifests in part.uses:
            sums = self.repositories[repository_id]
            sums[0] += size * manifests
            sums[1] += size
            sums[2] += size if uses[object_id] == 1 else 0


async def _repositories(database: Database, account_id: str) -> AsyncIterator[NamedRepository]:
    after = ""
    while page := await database.read(storage.list_repositories, account_id, after, _SLICE):
        for each in page:
            yield each
        after = page[-1].name


async def _yield() -> None:
    """Yield to the event loop, which a read of SQLite does not."""
    await asyncio.sleep(0)
