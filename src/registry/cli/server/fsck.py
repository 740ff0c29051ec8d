"""``entrepot fsck``: compare the blob store with the metadata; set aside files without a row."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from cloudcore.command_failures import CommandFailure
from cloudcore.commands.progress import ProgressLine
from cloudcore.commands.records import duration_text, write_now
from registry.blobstore.opening import open_bucket_store
from registry.blobstore.store import BlobSweeper
from registry.cli.server.existing_data import (
    find_data_keys,
    on_data,
    prepare_existing,
    rollback_warning,
)
from registry.cli.server.options import settings_of
from registry.composition.main import Registry
from registry.gc.database_rollback import DatabaseWentBack, check_generation
from registry.gc.fsck import FsckReport, check
from registry.gc.object_check import CheckProgress
from registry.gc.orphans import (
    STAGED,
    FoundOrphans,
    TooNew,
    check_newest,
    find_orphans,
    list_orphans,
    places_of,
    set_orphans_aside,
    take_back_owned,
    together,
)
from registry.metadata.database import check_whole
from registry.services.context import ServiceContext
from registry.settings.settings import Settings


def run_fsck(options: argparse.Namespace) -> int:
    """Check the data, and print every finding; return 1 for a violation or a warning, else 0.

    Files that were set aside and have a row now are put back first. With ``--remove-orphans``, set
    the orphans aside, to be deleted days later; raise `CommandFailure` if an invariant is violated.
    """
    settings = settings_of(options)
    checked = check_data(settings, read_objects=not options.quick)
    report = checked.report
    if options.remove_orphans:
        if report.violations:
            raise CommandFailure(
                "no orphans were set aside: wrong metadata may be wrong about them too; mend what"
                " is listed above first"
            )
        with ProgressLine(sys.stderr) as line:
            moved = on_data(
                settings,
                lambda stores: set_all_orphans_aside(stores.ctx, stores.store, line.show),
            )
        left = len(report.orphans) - moved
        kept = f" for {duration_text(settings.delays.gc_orphan_seconds)}" if moved else ""
        rest = f"; {left} may be uploads under way" if left > 0 else ""
        write_now(f"{moved} orphans set aside{kept}{rest}\n")
    return 1 if report.violations or checked.warning else 0


class CheckResult(NamedTuple):
    """The result of a check."""

    put_back: int
    """Number of files that were set aside, and were put back since they have a row now."""
    orphans: int
    """Number of files that are set aside."""
    report: FsckReport
    warning: str
    """Reason why the whole report may be wrong; empty if there is none."""


def check_data(settings: Settings, *, read_objects: bool) -> CheckResult:
    """Check the data of a registry, print every finding, and return the result."""
    prepare_existing(settings)
    check_whole(settings.database)
    checked = asyncio.run(_check(settings, read_objects=read_objects))
    report = checked.report
    if checked.put_back:
        write_now(
            f"{checked.put_back} files that had been set aside were put back: rows own them\n"
        )
    if checked.orphans:
        write_now(f"{checked.orphans} files are set aside; 'entrepot gc orphans' lists them\n")
    for finding in (*report.violations, *report.orphans):
        write_now(f"{finding}\n")
    if report.unerased_count:
        write_now(
            f"{report.unerased_count} blobs or more have data keys under deleted keys: a serving"
            " registry erases them within a minute\n"
        )
    if report.untried:
        write_now(f"Not all data keys were tried: {report.untried}\n")
    for image in report.damaged_images:
        write_now(f"{image}\n")
    if report.damaged_count:
        write_now(
            f"{report.damaged_count} blobs are damaged, {len(report.damaged_images)} images need "
            "them: a push of the same image heals them\n"
        )
    if report.opened_count:
        write_now(f"{report.opened_count} wrapped data keys tried\n")
    pieces = f", {report.piece_count} pieces of buckets" if report.piece_count else ""
    write_now(
        f"{report.object_count} blobs{pieces} and {report.manifest_count} manifests checked: "
        f"{len(report.violations)} violations, {len(report.orphans)} orphans\n"
    )
    if checked.warning:
        write_now(f"Warning: {checked.warning}\n")
    return checked


async def _check(settings: Settings, *, read_objects: bool) -> CheckResult:
    def show(progress: CheckProgress) -> None:
        read = f", {progress.read_bytes / 1e9:.2f} GB read" if read_objects else ""
        line.show(f"{progress.stage} {progress.done} of {progress.total}{read}")

    with ProgressLine(sys.stderr) as line:
        async with Registry(settings).open() as stores, open_bucket_store(settings) as buckets:
            ctx, store = stores.ctx, stores.store
            put_back = await take_back_owned(ctx, store)
            report = await check(
                ctx.database,
                store,
                show,
                clock=ctx.clock,
                read_objects=read_objects,
                data_keys=find_data_keys(settings, ctx),
                buckets=buckets,
            )
            warning = await rollback_warning(stores)
            return CheckResult(put_back, len(await list_orphans(store)), report, warning)


Show = Callable[[str], None]


async def set_all_orphans_aside(ctx: ServiceContext, sweeper: BlobSweeper, show: Show) -> int:
    """Set the orphans of all partitions aside; return how many were moved.

    All are counted before the first is moved: with the wrong database, each partition of a small
    registry may have few orphans, but all together have too many.

    Raise `CommandFailure` if the database seems to be the wrong one, or if more files have no row
    than crashes leave: in all partitions together, or in one, whose files then stay.
    """
    await _require(check_generation(ctx, sweeper))
    places = await _scan_places(ctx, sweeper, show)
    whole = together(places.values())
    if whole.is_foreign:
        raise CommandFailure(
            f"{whole.doubtful} of {whole.files} stored files belong to no row, more than"
            " crashes leave: none was set aside. Are blobs and database of one registry (--data,"
            " ENTREPOT_DATABASE_URL), and is the database no older than the blobs? If it is the"
            " right one, run 'entrepot gc accept-database'"
        )
    await _require(check_newest(ctx, sweeper, whole.orphans))
    moved = 0
    for number, (place, found) in enumerate(places.items(), 1):
        show(f"setting orphans aside, place {number} of {len(places)}")
        if found.orphans and found.is_credible:
            moved += await set_orphans_aside(ctx, sweeper, place)
    doubtful = [
        place if place == STAGED else f"objects/{place}"
        for place, found in places.items()
        if not found.is_credible
    ]
    if doubtful:
        raise CommandFailure(
            f"{moved} orphans set aside, but none from {', '.join(doubtful)}: of the files there"
            " more belong to no row than crashes leave; is this the right database?"
        )
    return moved


async def _require(checking: Coroutine[Any, Any, None]) -> None:
    try:
        await checking
    except (DatabaseWentBack, TooNew) as error:
        raise CommandFailure(str(error)) from None


async def _scan_places(
    ctx: ServiceContext, sweeper: BlobSweeper, show: Show
) -> Mapping[str, FoundOrphans]:
    places = places_of(sweeper)
    found = {}
    for number, place in enumerate(places, 1):
        show(f"looking for orphans, place {number} of {len(places)}")
        found[place] = await find_orphans(ctx, sweeper, place)
    return found
