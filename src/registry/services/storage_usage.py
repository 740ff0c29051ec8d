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
from cloudcore.wire import ResponseBody
from registry.metadata import storage_usage as storage
from registry.metadata.collector.collection import measure_stage
from registry.metadata.repositories.repository import VisibleRepository
from registry.metadata.storage_usage import MeasuredObject, NamedRepository, ObjectUse
from registry.services.images.details import get_manifest_row
from registry.services.images.index_deletion import read_division

_ObjectList = Callable[[Connection, str, str, int], list[MeasuredObject]]

_SLICE: Final = 500
"""The number of links in one read, which takes some milliseconds."""
_FIRST: Final = 10
"""The number of objects in the first read, when the number of links per object is unknown."""
_TOMBSTONES: Final = 100
"""The number of deleted images in one read."""


class ImageStorageAnswer(ResponseBody):
    """The storage used by an image; by an index with all images under it."""

    size_bytes: int
    """Bytes of its distinct blobs."""
    exclusive_bytes: int
    """Bytes freed by deleting it, and then the children that nothing else uses."""
    shared_bytes: int
    """Bytes that other images of the account need too."""
    freed_bytes: int
    """Bytes freed by deleting it alone, without the children of an index."""
    restorable_bytes: int
    """The part of `exclusive_bytes` that restorable deleted images hold too."""
    unused_children: int
    """Number of images under this index that nothing else uses."""
    unused_digests: Sequence[str]
    """Their digests, an index before the images it lists: the order in which to delete them."""


class RepositoryStorage(ResponseBody):
    """The storage used by a repository."""

    logical_bytes: int
    """Bytes its images would take if each had copies of its own."""
    size_bytes: int
    """Bytes of its distinct blobs."""
    exclusive_bytes: int
    """Bytes freed by deleting it."""
    shared_bytes: int
    """Bytes that other repositories of the account need too."""


def _storage_of(sums: Sequence[int]) -> RepositoryStorage:
    """Convert (logical, distinct, exclusive) bytes to a repository's storage."""
    logical, size, exclusive = sums
    return RepositoryStorage(
        logical_bytes=logical,
        size_bytes=size,
        exclusive_bytes=exclusive,
        shared_bytes=size - exclusive,
    )


class StorageUsage(ResponseBody):
    """The storage used by an account. Deleting frees nothing at once; the collector does later."""

    logical_bytes: int
    """Bytes its images would take if each had copies of its own."""
    unique_bytes: int
    """Bytes of the distinct blobs that its images need."""
    dedup_ratio: float
    """`logical_bytes` by `unique_bytes`."""
    stored_bytes: int
    """Bytes on disk of all its blobs."""
    compression_saved_bytes: int
    """Bytes on disk that compression saves, of `unique_bytes`."""
    restorable_bytes: int
    """The part of `stored_bytes` that only restorable images and repositories hold."""
    pending_sweep_bytes: int
    """The part of `stored_bytes` that nothing needs, or nothing yet."""


def saved_by_compression(unique: int, stored: int, restorable: int, pending: int) -> int:
    """Return how many of the `unique` bytes compression saves on disk; 0 if sealing adds more.

    `stored` bytes include the `restorable` and the `pending` ones, which are not `unique`.
    """
    return max(0, unique - (stored - restorable - pending))


def measure_image(
    tx: Connection, found: VisibleRepository, reference: str, now: int
) -> ImageStorageAnswer:
    """Return the storage of an image; raise `ManifestUnknown` if there is no such image.

    The cost grows with its descendants and blobs.
    """
    account_id, repository_id = found.repository.account_id, found.repository.id
    manifest = get_manifest_row(tx, found, reference)
    deleted, kept = read_division(tx, repository_id, manifest.id, now)
    ids = [each.id for each in deleted]
    every = [*ids, *(each.id for each, _ in kept)]
    whole = together = alone = storage.sum_blobs_of(tx, account_id, repository_id, every, now)
    if len(every) > 1:
        together = storage.sum_blobs_of(tx, account_id, repository_id, ids, now)
        alone = storage.sum_blobs_of(tx, account_id, repository_id, [manifest.id], now)
    return ImageStorageAnswer(
        size_bytes=whole.size_bytes,
        exclusive_bytes=together.exclusive_bytes,
        shared_bytes=whole.size_bytes - together.exclusive_bytes,
        freed_bytes=alone.exclusive_bytes,
        restorable_bytes=together.restorable_bytes,
        unused_children=len(deleted) - 1,
        unused_digests=[each.digest for each in deleted[1:]],
    )


async def measure_repository(
    database: Database, account_id: str, repository_id: str
) -> RepositoryStorage:
    """Return the storage of a repository; the cost grows with the number of its blobs.

    Each slice is a transaction of its own, so that other requests run in between.
    """
    sums = [0, 0, 0]
    after: str | None = ""
    while after is not None:
        part = await database.read(storage.sum_links, account_id, repository_id, after, _SLICE)
        found = part.logical_bytes, part.size_bytes, part.exclusive_bytes
        sums = [before + more for before, more in zip(sums, found, strict=True)]
        after = part.last if part.rows == _SLICE else None
        await asyncio.sleep(0)  # a read of SQLite does not yield to the event loop
    return _storage_of(sums)


async def measure_restorable(
    database: Database, account_id: str, repository_id: str, now: int
) -> int:
    """Return the bytes that only restorable images of a repository need.

    The cost grows with the number of these images. They are read in slices, as in
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
        await asyncio.sleep(0)
    return sum(sizes.values())


async def measure_account(
    database: Database, account_id: str, now: int
) -> tuple[StorageUsage, Sequence[tuple[NamedRepository, RepositoryStorage]]]:
    """Return the storage of an account, and of its repositories by descending exclusive bytes.

    Each object and each link is read once: about 1 s per 100,000. Each slice is a transaction of
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
        await asyncio.sleep(0)
    after = ""
    read = partial(_read_slice, storage.list_replaced_objects)
    while (part := await database.read(read, account_id, now, after, _FIRST)).objects:
        sums.add(part)
        after = part.objects[-1].id
        await asyncio.sleep(0)
    measured = [
        (each, _storage_of(sums.repositories.get(each.id, (0, 0, 0))))
        async for each in _repositories(database, account_id)
    ]
    quarantined = await database.read(measure_stage, account_id, "quarantined")
    logical = sum(each.logical_bytes for _, each in measured)
    stored = sums.stored_bytes + quarantined.stored_bytes
    pending = sums.pending_bytes + quarantined.stored_bytes
    unique, restorable = sums.unique_bytes, sums.restorable_bytes
    usage = StorageUsage(
        logical_bytes=logical,
        unique_bytes=unique,
        dedup_ratio=round(logical / unique, 4) if unique else 1.0,
        stored_bytes=stored,
        compression_saved_bytes=saved_by_compression(unique, stored, restorable, pending),
        restorable_bytes=restorable,
        pending_sweep_bytes=pending,
    )
    return usage, sorted(measured, key=lambda pair: (-pair[1].exclusive_bytes, pair[0].name))


class _Slice(NamedTuple):
    """A slice of an account's objects, with the repositories that use them."""

    objects: Sequence[MeasuredObject]
    uses: Sequence[ObjectUse]
    restorable: Collection[str]
    """The ids of those unused objects that a restorable image or repository needs."""


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
    """Sums over an account's objects, added up slice by slice."""

    unique_bytes: int = 0
    stored_bytes: int = 0
    restorable_bytes: int = 0
    pending_bytes: int = 0
    repositories: defaultdict[str, list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0, 0])
    )
    """The arguments of `_storage_of`, by repository id."""

    def add(self, part: _Slice) -> None:
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
