"""Scrub a registry, or some repositories, from beginning to end: ``entrepot scrub``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from registry.blobstore.base import BlobReader
from registry.gc.object_check import BLOBS, FoundDamage, ObjectCheck
from registry.gc.pace import Pace
from registry.gc.piece_marks import PIECES, DamagedPiece, all_pieces
from registry.gc.scrub.manifests import FoundManifest, ManifestCheck, all_manifests, manifests_of
from registry.metadata.collector import audit, scrub
from registry.metadata.collector.audit import ObjectRow

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class ScrubScope:
    """What a scrub reads."""

    repository_ids: Sequence[str] = ()
    """The repositories whose blobs and manifests are read; none: everything."""
    older_than: int = 0
    """Blobs that were verified less than this many microseconds ago are skipped."""


class ScrubProgress(NamedTuple):
    """Progress of a scrub: blobs, manifests or pieces of buckets, and the bytes of all."""

    stage: str
    done: int
    total: int | None
    """None if not known."""
    read_bytes: int


@dataclass
class ScrubReport:
    """The result of a scrub."""

    object_count: int = 0
    manifest_count: int = 0
    piece_count: int = 0
    read_bytes: int = 0
    blobs: list[FoundDamage] = field(default_factory=list)
    pieces: list[DamagedPiece] = field(default_factory=list)
    manifests: list[FoundManifest] = field(default_factory=list)


async def scrub_all(
    database: Database,
    store: BlobReader,
    clock: Clock,
    scope: ScrubScope,
    pace: Pace,
    tell: Callable[[ScrubProgress], None],
    buckets: BlobReader | None = None,
) -> ScrubReport:
    """Read the blobs and manifests of a scope; return what was found.

    If it is everything, read the pieces in the store of the `buckets` too.

    Mark damaged blobs, and unmark those that are whole again. If it is interrupted, a next one
    that skips what was verified of late goes on where this one stopped.
    """
    report = ScrubReport()
    is_whole = not scope.repository_ids
    total = (await database.read(audit.totals))[0] if is_whole and not scope.older_than else None
    # A blob that is pushed from now on is verified by its push.
    rows = _objects(database, scope, clock() - scope.older_than)

    def tell_objects() -> None:
        report.object_count, report.read_bytes = objects.object_count, objects.read_bytes
        tell(ScrubProgress("blobs", report.object_count, total, report.read_bytes))

    objects = ObjectCheck(
        database, store, clock, BLOBS, report.blobs.append, tell_objects, pace=pace
    )
    await objects.run(rows)

    def tell_manifests() -> None:
        report.manifest_count = manifests.manifest_count
        report.read_bytes = objects.read_bytes + manifests.read_bytes
        tell(ScrubProgress("manifests", report.manifest_count, None, report.read_bytes))

    manifests = ManifestCheck(database, pace, tell_manifests)
    if is_whole:
        report.manifests += [each async for each in manifests.run(all_manifests(database))]
    for repository_id in scope.repository_ids:
        pages = manifests_of(database, repository_id)
        report.manifests += [each async for each in manifests.run(pages)]
    if buckets is None or not is_whole:
        return report
    read_before = report.read_bytes

    def tell_pieces() -> None:
        report.piece_count = pieces.object_count
        report.read_bytes = read_before + pieces.read_bytes
        tell(ScrubProgress("pieces of buckets", report.piece_count, None, report.read_bytes))

    pieces = ObjectCheck(
        database, buckets, clock, PIECES, report.pieces.append, tell_pieces, pace=pace
    )
    await pieces.run(all_pieces(database, clock() - scope.older_than))
    return report


async def _objects(
    database: Database, scope: ScrubScope, verified_before: int
) -> AsyncIterator[ObjectRow]:
    """Yield the objects of a scope that were verified before a moment; none twice.

    The pages are read while objects are verified, which changes no order.
    """
    after = ""
    if not scope.repository_ids:
        while page := await database.read(scrub.all_objects, verified_before, after, _PAGE):
            for row in page:
                yield row
            after = page[-1].id
    seen: set[str] = set()
    for repository_id in scope.repository_ids:
        after = ""
        while page := await database.read(
            scrub.objects_of_repository, repository_id, verified_before, after, _PAGE
        ):
            for row in page:
                if row.id not in seen:
                    seen.add(row.id)
                    yield row
            after = page[-1].digest
