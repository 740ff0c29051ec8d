"""Carry out ``entrepot scrub`` and ``scrub status``; print damage and status for ``seal`` too."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.command_failures import Missing
from cloudcore.commands.progress import ProgressLine
from cloudcore.commands.records import (
    TABLE,
    duration_text,
    size_text,
    time_text,
    utc_text,
    write_now,
    write_record,
)
from cloudcore.errors import NotFound
from registry.blobstore.opening import open_bucket_store
from registry.cli.client.api import Record
from registry.cli.server.existing_data import on_data, prepare_existing, rollback_warning
from registry.cli.server.options import settings_of
from registry.composition.main import Registry
from registry.gc.object_check import CheckProgress, FoundDamage, Pace
from registry.gc.scrub import (
    ScrubReport,
    ScrubScope,
    ScrubStatus,
    scrub_all,
    scrub_status,
)
from registry.metadata.database import check_whole
from registry.oci.reference import parse_name
from registry.services.repositories.names import get_named_repository
from registry.settings.settings import Settings

_DAY: Final = 24 * 3600 * MICROSECONDS


def run_scrub(options: argparse.Namespace) -> int:
    """Read all stored bytes and print damage; return 1 if there is any."""
    settings = settings_of(options)
    prepare_existing(settings)
    check_whole(settings.database)
    begun = time.monotonic()
    report, warning = asyncio.run(_scrub(settings, options))
    seconds = time.monotonic() - begun
    write_damaged(report.blobs)
    for found in report.manifests:
        write_now(f"manifest {found.manifest.digest}: {found.problem}\n")
        for image in found.images:
            write_now(f"image {image} has this manifest\n")
    for piece in report.pieces:
        write_now(f"{piece}: {piece.problem}\n")
    images = {str(image) for blob in report.blobs for image in blob.images}
    images |= {str(image) for found in report.manifests for image in found.images}
    damaged = len(report.blobs) + len(report.manifests)
    if report.pieces:
        hit = {each.hit for each in report.pieces if each.hit is not None}
        write_now(
            f"{len(report.pieces)} pieces of {len(hit)} objects in buckets are damaged: reading"
            " them fails until they are stored again\n"
        )
    if damaged:
        write_now(
            f"{len(report.blobs)} blobs and {len(report.manifests)} manifests are damaged,"
            f" {len(images)} images need them: a push of the same image heals them\n"
        )
    rate = size_text(int(report.read_bytes / max(seconds, 0.001)))
    pieces = f", {report.piece_count} pieces of buckets" if report.piece_count else ""
    write_now(
        f"{report.object_count} blobs{pieces} and {report.manifest_count} manifests"
        f" read, {size_text(report.read_bytes)}, {rate}/s: {damaged + len(report.pieces)} damaged\n"
    )
    if warning:
        write_now(f"Warning: {warning}\n")
    return 1 if damaged or report.pieces or warning else 0


async def _scrub(settings: Settings, options: argparse.Namespace) -> tuple[ScrubReport, str]:
    """Run the scrub; return the report, and a warning if the report may be wrong, else ""."""
    names = [parse_name(each) for each in options.repositories]

    def show(progress: CheckProgress) -> None:
        total = "" if progress.total is None else f" of {progress.total}"
        line.show(f"{progress.stage} {progress.done}{total}, {size_text(progress.read_bytes)} read")

    with ProgressLine(sys.stderr) as line:
        async with Registry(settings).open() as stores, open_bucket_store(settings) as buckets:
            ctx, store = stores.ctx, stores.store
            try:
                found = [await ctx.database.read(get_named_repository, name) for name in names]
            except NotFound as error:
                raise Missing(str(error)) from None
            warning = await rollback_warning(stores)
            scope = ScrubScope([each.id for each in found], options.older_than * _DAY)
            pace = Pace(options.limit_rate)
            report = await scrub_all(ctx.database, store, ctx.clock, scope, pace, show, buckets)
            return report, warning


def run_status(options: argparse.Namespace) -> None:
    """Print the progress of the background scrub."""
    settings = settings_of(options)
    status = on_data(
        settings,
        lambda stores: scrub_status(
            stores.ctx.database, stores.ctx.clock() - settings.scrubbing.every
        ),
    )
    write_status(options.output, _lines(settings, status), _record(settings, status))


def _lines(settings: Settings, status: ScrubStatus) -> list[str]:
    rate = settings.scrubbing.scrub_rate_bytes
    every = settings.scrubbing.scrub_every_seconds
    period = f"{every // 86400} days" if every % 86400 == 0 else duration_text(every)
    setting = f"every blob is read once in {period}, at {size_text(rate)}/s or less"
    blobs, pieces = status.blobs, status.pieces
    verified = (
        f"verified in that time: {blobs.verified} of {blobs.objects} blobs,"
        f" {size_text(blobs.verified_bytes)} of {size_text(blobs.stored_bytes)}"
    )
    lines = [setting if rate else f"turned off (scrub_rate_bytes = 0); period {period}", verified]
    if status.oldest_at is not None:
        lines.append(f"verified longest ago: {time_text(utc_text(status.oldest_at))}")
    known = f"known to be damaged: {blobs.damaged} blobs"
    if pieces.objects:
        known += f", {pieces.damaged} pieces of buckets"
        lines.append(
            f"and in buckets: {pieces.verified} of {pieces.objects} pieces,"
            f" {size_text(pieces.verified_bytes)} of {size_text(pieces.stored_bytes)}"
        )
    lines.append(known)
    return [*lines, *last_turn(status.turn_ended_at, is_failed=status.is_failed)]


def _record(settings: Settings, status: ScrubStatus) -> Record:
    scrubbing = settings.scrubbing
    return {
        "every_seconds": scrubbing.scrub_every_seconds,
        "rate_bytes": scrubbing.scrub_rate_bytes,
        "blobs": status.blobs.objects,
        "stored_bytes": status.blobs.stored_bytes,
        "verified_blobs": status.blobs.verified,
        "verified_bytes": status.blobs.verified_bytes,
        "oldest_verified_at": None if status.oldest_at is None else utc_text(status.oldest_at),
        "damaged_blobs": status.blobs.damaged,
        "pieces": status.pieces.objects,
        "piece_bytes": status.pieces.stored_bytes,
        "verified_pieces": status.pieces.verified,
        "verified_piece_bytes": status.pieces.verified_bytes,
        "damaged_pieces": status.pieces.damaged,
        "turn_ended_at": None if status.turn_ended_at is None else utc_text(status.turn_ended_at),
        "turn_failed": status.is_failed,
    }


def write_damaged(blobs: Iterable[FoundDamage]) -> None:
    """Print the damage of each blob, and the images that need the blob."""
    for blob in blobs:
        write_now(f"blob {blob.digest}: {blob.problem}\n")
        for needy in blob.images:
            write_now(f"image {needy} needs blob {blob.digest}\n")


def write_status(form: str, lines: Iterable[str], record: Record) -> None:
    """Print `lines`, or in a format for programs `record`."""
    if form == TABLE:
        write_now("\n".join([*lines, ""]))
    else:
        write_record(record, form)


def last_turn(ended_at: int | None, *, is_failed: bool) -> list[str]:
    """Return the line about the last background turn; an empty list if there was none."""
    if ended_at is None:
        return []
    failed = "; it failed, and the log has the reason" if is_failed else ""
    return [f"last turn: {time_text(utc_text(ended_at))}{failed}"]
