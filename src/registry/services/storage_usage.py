"""What things take, what they share, and what deleting them would free.

Bytes are those of blobs; manifests are rows of the database and not counted. Nothing is freed at
once (rule 6): what a deletion frees goes by the collector, and, while the account can undo
deletions, only after the time for that is over.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database
from registry.metadata import storage_usage as storage
from registry.metadata.collector.collection import measure_quarantined
from registry.metadata.repositories.visible import ImageRepository
from registry.metadata.storage_usage import MeasuredObject, NamedRepository, Use
from registry.services.images.details import find_manifest
from registry.services.images.index_deletion import read_division

_SLICE: Final = 500
"""Links a read: some milliseconds."""
_FIRST: Final = 10
"""Objects of the first read, before it is known how many links they have."""
_TOMBSTONES: Final = 100
"""Deleted images a read."""


class ImageStorage(NamedTuple):
    """What one image takes, with everything under it if it is an index."""

    size_bytes: int
    """Of its distinct blobs, those of all its descendants among them."""
    exclusive_bytes: int
    """Freed by deleting it together with the children that nothing else uses then: of blobs that
    no other manifest of the account needs. `images.index_deletion` decides which these are."""
    freed_bytes: int
    """Freed by deleting it alone: an index leaves its children, and owns no blobs."""
    restorable_bytes: int
    """The part of `exclusive_bytes` that something deleted still holds until it can no longer be
    restored."""
    unused_digests: Sequence[str]
    """Of the manifests under it that nothing else uses, each after all that list it."""

    @property
    def shared_bytes(self) -> int:
        """Return what stays because something else needs it."""
        return self.size_bytes - self.exclusive_bytes


class RepositoryStorage(NamedTuple):
    """What one repository takes."""

    logical_bytes: int = 0
    """What its images would take if each kept copies of its own."""
    size_bytes: int = 0
    """Of its distinct blobs (rule 5)."""
    exclusive_bytes: int = 0
    """Of blobs that no other repository of the account needs: freed by deleting it."""

    @property
    def shared_bytes(self) -> int:
        """Return what stays because other repositories need it."""
        return self.size_bytes - self.exclusive_bytes


class StorageUsage(NamedTuple):
    """What an account takes.

    ``stored = live + restorable + pending``, where live is what `unique_bytes` take on disk.
    """

    logical_bytes: int
    """What all images would take if each kept copies of its own. An index counts as its images."""
    unique_bytes: int
    """Of the distinct blobs that images need: what deduplication leaves of that."""
    stored_bytes: int
    """On disk, of all the account's blobs; unfinished uploads are none yet."""
    restorable_bytes: int
    """On disk, held only by deleted images or repositories that can be restored."""
    pending_sweep_bytes: int
    """On disk, of blobs nothing needs: the collector takes them, unless they are on the way to
    a manifest that is pushed at this moment."""
    as_of: int
    """When measuring began; what changes meanwhile may or may not be counted."""
    repositories: Sequence[tuple[NamedRepository, RepositoryStorage]]
    """The largest first, by what deleting them would free."""

    @property
    def dedup_ratio(self) -> float:
        """Return how many times more the images would take without deduplication."""
        return round(self.logical_bytes / self.unique_bytes, 4) if self.unique_bytes else 1.0


def measure_image(tx: Connection, found: ImageRepository, reference: str, now: int) -> ImageStorage:
    """Return what an image takes; costs as much as it has descendants and blobs.

    Raises:
        ManifestUnknown: there is no such image.

    """
    account_id, repository_id = found.repository.account_id, found.repository.id
    manifest = find_manifest(tx, found, reference)
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
    """Return what a repository takes; costs as much as it has blobs."""
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
        await _let_others()
    return sums


async def measure_restorable(
    database: Database, account_id: str, repository_id: str, now: int
) -> int:
    """Return the bytes that only deleted images of a repository hold.

    Costs as much as it has deleted images that can be restored.
    """
    sizes: dict[str, int] = {}
    after = (-1, "")
    while page := await database.read(
        storage.list_tombstones, repository_id, now, after, _TOMBSTONES
    ):
        ids = [tombstone_id for _, tombstone_id in page]
        sizes |= await database.read(storage.deleted_objects, account_id, ids)
        after = page[-1]
        await _let_others()
    return sum(sizes.values())


async def measure_account(database: Database, account_id: str, now: int) -> StorageUsage:
    """Return what an account takes.

    It reads each object, and each link to it, once: about a second for every 100,000. It goes
    slice by slice, so that others are served in between, and therefore sees no single moment.
    """
    sums = _Sums()
    after, limit = "", min(_FIRST, _SLICE)
    while (part := await database.read(_read_slice, account_id, now, after, limit)).objects:
        sums.add(part)
        after = part.objects[-1].digest
        # Base layers may be in every repository: so many objects as have about a slice of links.
        limit = max(1, len(part.objects) * _SLICE // max(len(part.objects), len(part.uses)))
        await _let_others()
    measured = [
        (each, RepositoryStorage(*sums.repositories.get(each.id, ())))
        async for each in _repositories(database, account_id)
    ]
    quarantined = await database.read(measure_quarantined, account_id)
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
    """Some of an account's objects, and what keeps them."""

    objects: Sequence[MeasuredObject]
    uses: Sequence[Use]
    restorable: Collection[str]
    """The ids of those that have no use but can be restored."""


def _read_slice(tx: Connection, account_id: str, now: int, after: str, limit: int) -> _Slice:
    objects = storage.list_objects(tx, account_id, after, limit)
    uses = storage.uses_of(tx, account_id, [each.id for each in objects])
    used = {use.object_id for use in uses}
    unused = [each.id for each in objects if each.id not in used]
    return _Slice(objects, uses, storage.restorable_of(tx, account_id, unused, now))


@dataclass
class _Sums:
    """What slices of an account's objects add up to."""

    unique_bytes: int = 0
    stored_bytes: int = 0
    restorable_bytes: int = 0
    pending_bytes: int = 0
    repositories: defaultdict[str, list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0, 0])
    )
    """The fields of a `RepositoryStorage`, by id of the repository."""

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


async def _let_others() -> None:
    """Let the loop serve others: on SQLite a read does not."""
    await asyncio.sleep(0)
