"""Check that the store and the database agree, and that counters equal their recounts (fsck).

Each finding begins with the invariant that is violated:

- I1, I5  the bytes of every object exist, have its size, and (unless ``--quick``) its digest
- I2      an upload session's acknowledged bytes are staged
- I3      the bytes of every manifest exist and have its digest, and it has all its edges
- I4      every tag points to a manifest, every link to an object
- I6      stored bytes have a row, except those of an upload in progress; other bytes without a
          row are no violation, since the orphan scan sets them aside; inline bytes always have one
- I7      a sealed blob has a data key under the key of each of its links and deleted images, and
          under no other; a plain or shredded one has none; and if the keys of the install are at
          hand, each data key under an enabled key opens, and opens the blob's bytes
- I8      every counter equals its recount
- B1      the bytes of every piece of an object in a bucket exist, have its size, and its checksum
- B2      the counts of a bucket, and of an account's bytes in buckets, equal their recounts

The check may run beside a serving registry: objects and sessions that look wrong are checked again
before they are reported, since a push or a deletion may have changed them. The check writes only
marks: it marks damaged objects and pieces, so that a push of the same bytes heals them, and removes
the marks of intact objects and pieces.

Once a day the server recounts the stored bytes of accounts and corrects wrong numbers
(`recount_bytes`). Each change of an object changes the number in the same transaction, so a wrong
number comes from a bug in this program, or from a manual change of rows; it is logged.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.objects.damage import Miscount
from cloudcore.storage.pieces import recounts
from registry.blobstore.sealed.frame_format import sealed_size
from registry.blobstore.store import BlobReader, BlobStore
from registry.gc.data_keys import WrapCheck, find_key_faults
from registry.gc.manifest_check import manifest_problem
from registry.gc.object_check import (
    BLOBS,
    PIECES,
    READERS,
    CheckProgress,
    DamagedPiece,
    FoundDamage,
    ObjectCheck,
)
from registry.gc.orphans import SETTLED, begun_at, is_held
from registry.metadata import quotas
from registry.metadata.blobs import inline
from registry.metadata.collector import audit
from registry.metadata.collector.audit import ManifestBody
from registry.metadata.collector.wrap_audit import stored_wraps, unerased_wraps
from registry.services.context import ServiceContext
from registry.services.data_keys import DataKeys

_PAGE: Final = 500
_MANIFESTS: Final = 16
"""Manifests per page; each may have 4 MiB."""


class Finding(NamedTuple):
    """A violated invariant, the affected resource, and the problem."""

    invariant: str
    subject: str
    problem: str

    def __str__(self) -> str:
        return f"{self.invariant}  {self.subject}: {self.problem}"


@dataclass
class FsckReport:
    """The result of a check."""

    violations: list[Finding] = field(default_factory=list)
    orphans: list[Finding] = field(default_factory=list)
    unerased_count: int = 0
    """Data keys under deleted KMS keys that are yet to be erased, up to 500; no violation."""
    untried: str = ""
    """Why some or all data keys were not tried; empty if all were, or there are none."""
    damaged_count: int = 0
    damaged_images: list[str] = field(default_factory=list)
    """Images that reference a damaged blob; for each blob, the first 500."""
    object_count: int = 0
    manifest_count: int = 0
    piece_count: int = 0
    read_bytes: int = 0
    opened_count: int = 0
    """Wrapped data keys that were tried."""


async def check(
    database: Database,
    store: BlobStore,
    on_progress: Callable[[CheckProgress], None],
    *,
    clock: Clock,
    read_objects: bool = True,
    readers: int = READERS,
    data_keys: DataKeys | None = None,
    buckets: BlobReader | None = None,
) -> FsckReport:
    """Compare `store` with `database`; return all findings. Read `readers` objects at once.

    - `buckets` is the store of buckets; without it, their bytes are not checked
    - without `data_keys`, no wrapped data key is decrypted
    - without `read_objects`, only presence and size of objects are checked, and no bytes are hashed
    - `on_progress` is called after each blob, manifest and piece
    """
    report = FsckReport()
    total_objects, total_manifests = await database.read(audit.totals)

    of, add = (database, store, clock, BLOBS), partial(_add, report)
    objects = ObjectCheck(*of, add, on_progress, reads=read_objects, total=total_objects)
    await objects.run(BLOBS.stored_rows.each(database), readers)
    report.object_count, report.read_bytes = objects.object_count, objects.read_bytes
    async for document in _manifests(database):
        problem = manifest_problem(document)
        if problem:
            subject = f"manifest {document.digest} in {document.repository}"
            report.violations.append(Finding("I3", subject, problem))
        report.manifest_count += 1
        on_progress(
            CheckProgress("manifests", report.manifest_count, total_manifests, report.read_bytes)
        )
    await _check_pointers(database, report)
    await _check_counts(database, report)
    await _check_keys(database, store, data_keys, report)
    await _check_staged(database, store, clock, report)
    if buckets is not None:
        total_pieces = (await database.read(PIECES.stored_rows.totals, 0)).objects

        pieces = ObjectCheck(
            database,
            buckets,
            clock,
            PIECES,
            partial(_add_piece, report),
            on_progress,
            reads=read_objects,
            total=total_pieces,
            read_before=report.read_bytes,
        )
        await pieces.run(PIECES.stored_rows.each(database), readers)
        report.piece_count = pieces.object_count
        report.read_bytes += pieces.read_bytes
        report.violations += await _miscounts(database)
    return report


def _add_piece(report: FsckReport, found: DamagedPiece) -> None:
    report.violations.append(Finding("B1", str(found), found.problem))


async def _miscounts(database: Database) -> list[Finding]:
    """Return the miscounts of buckets; count twice, since a change may be under way."""
    first = await database.read(recounts.miscounts)
    again = await database.read(recounts.miscounts) if first else []
    return [Finding("B2", each.what, each.problem) for each in again if each in first]


def _add(report: FsckReport, found: FoundDamage) -> None:
    report.violations.append(Finding("I1, I5", f"blob {found.digest}", found.problem))
    report.damaged_count += 1
    report.damaged_images += [f"image {image} needs blob {found.digest}" for image in found.images]


async def _check_pointers(database: Database, report: FsckReport) -> None:
    for name, manifest_id in await database.read(audit.dangling_tags):
        report.violations.append(Finding("I4", f"tag {name}", f"no manifest {manifest_id}"))
    for digest, object_id in await database.read(audit.dangling_links):
        report.violations.append(Finding("I4", f"blob {digest}", f"no object {object_id}"))


async def _check_counts(database: Database, report: FsckReport) -> None:
    wrong = await database.read(audit.miscounted_references)
    after: str | None = ""
    while after is not None:
        found, after = await database.read(audit.miscounts, after, _PAGE)
        wrong += found
    wrong += [found async for _, found in miscounted_accounts(database)]
    report.violations += [Finding("I8", each.what, each.problem) for each in wrong]


async def _check_keys(
    database: Database, store: BlobStore, data_keys: DataKeys | None, report: FsckReport
) -> None:
    faults = await find_key_faults(database)
    if data_keys is not None:
        check = WrapCheck(database, store, data_keys)
        faults += [fault async for fault in check.run()]
        report.opened_count = check.wrap_count
        report.untried = "; ".join(
            f"{why} (KMS key {kms_key_id})" for kms_key_id, why in check.untried.items()
        )
    elif await database.read(stored_wraps, ("", ""), 1):
        report.untried = (
            "there is no root key (root_key_file, or root.key in the data folder), without which no"
            " sealed blob can be read"
        )
    report.violations += [Finding("I7", f"blob {each.digest}", each.problem) for each in faults]
    report.unerased_count = len(await database.read(unerased_wraps, _PAGE))


async def _check_staged(
    database: Database, store: BlobStore, clock: Clock, report: FsckReport
) -> None:
    """Check the staged bytes of upload sessions, and report stored bytes that have no row."""
    lost = await _lost_bytes(database, store, clock)
    if lost:  # a request may have changed or ended a session after its row was read
        still_lost = await _lost_bytes(database, store, clock)
        report.violations += [finding for finding in lost if finding in still_lost]
    for listing, kind, owner in (
        (store.list_staged(), "staged bytes", "session"),
        (store.list_objects(), "object", "blob"),
    ):
        async for found in listing:
            if await _is_orphan(database, store, clock, found.object_id):
                problem = f"{found.stored_size} bytes of no {owner}"
                report.orphans.append(Finding("I6", f"{kind} {found.object_id}", problem))
    for stray in await database.read(inline.stray_bodies, _PAGE):  # these should never exist
        problem = f"{stray.stored_size} bytes of no blob"
        report.violations.append(Finding("I6", f"inline bytes {stray.stored_id}", problem))


async def _is_orphan(database: Database, store: BlobStore, clock: Clock, object_id: str) -> bool:
    """Return True if bytes have no row, are not recent, and no writer has them locked.

    A writer unlocks its bytes only after it has written their row, so the row is looked up again.
    """
    if await database.read(audit.owned, [object_id]):
        return False
    is_recent = abs(clock() - begun_at(object_id)) < SETTLED  # clocks of machines differ
    if is_recent or await is_held(store, object_id):
        return False
    return not await database.read(audit.owned, [object_id])


async def _lost_bytes(database: Database, store: BlobStore, clock: Clock) -> list[Finding]:
    """Return a finding for each upload session whose acknowledged bytes are not all stored.

    Expired sessions are skipped: the purge deletes their bytes before their rows.
    """
    lost: list[Finding] = []
    after = ""
    while page := await database.read(audit.sessions, after, _PAGE):
        after = page[-1].id
        for each in page:
            if each.expires_at <= clock():
                continue
            received, is_sealed = each.received_bytes, bool(each.is_sealed)
            if each.body is not None:
                expected = sealed_size(received) if is_sealed else received
                if len(each.body) != expected:
                    problem = f"{len(each.body)} bytes in its row, which should be {expected}"
                    lost.append(Finding("I2", f"upload {each.id}", problem))
                continue
            there = await store.resumable(each.stage_id, received, is_sealed=is_sealed)
            if there < received:
                problem = f"{received} bytes acknowledged, {there} staged"
                lost.append(Finding("I2", f"upload {each.id}", problem))
    return lost


async def _manifests(database: Database) -> AsyncIterator[ManifestBody]:
    after = ""
    while page := await database.read(audit.manifest_documents, after, _MANIFESTS):
        for row in page:
            yield row
        after = page[-1].id


RECOUNT_EVERY_SECONDS: Final = 24 * 3600
_log = logging.getLogger(__name__)


async def recount_bytes(ctx: ServiceContext) -> int:
    """Correct the stored bytes of accounts; return the number of accounts that were wrong."""
    wrong = 0
    async for account_id, _ in miscounted_accounts(ctx.database):
        found = await ctx.database.write(quotas.correct_count, account_id)
        if found is not None:
            wrong += 1
            _log.error("the %s were %d on record, and are %d", *found)
    return wrong


async def miscounted_accounts(database: Database) -> AsyncIterator[tuple[str, Miscount]]:
    """Yield accounts whose number of stored bytes looks wrong, as read without a lock."""
    after = ""
    while accounts := await database.read(quotas.counted_accounts, after, _PAGE):
        for after in accounts:
            found = await database.read(quotas.find_miscount, after)
            if found is not None:
                yield after, found
