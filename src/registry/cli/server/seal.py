"""Carry out ``entrepot seal`` and ``entrepot seal status``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import replace
from typing import Final

from cloudcore.command_failures import CommandFailure
from cloudcore.commands.progress import ProgressLine
from cloudcore.commands.records import size_text, utc_text, write_now
from cloudcore.kms.vault import Vault
from registry.cli.client.api import Record
from registry.cli.server.existing_data import on_data, prepare_existing
from registry.cli.server.options import settings_of
from registry.cli.server.scrub import last_turn, write_damaged, write_status
from registry.cli.server.serve import check_install
from registry.composition.main import Registry
from registry.composition.ports import key_providers
from registry.gc.database_rollback import DatabaseWentBack, check_generation
from registry.gc.object_check import Pace
from registry.gc.object_sealing import Outcome, Sealer
from registry.gc.seal_run import SealReport, SealStatus, plain_rows, seal_objects, seal_status
from registry.metadata.collector.plain_objects import FIRST, count_plain
from registry.metadata.database import check_whole
from registry.services.data_keys import DataKeys
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

_WORKERS: Final = 4
"""Number of blobs sealed at once."""
_STAYED: Final = {
    Outcome.KEY_UNUSABLE: "need a key that is disabled or deleted",
    Outcome.UNUSED: "are in no repository: the garbage collector deletes them",
    Outcome.CHANGED: "were changed meanwhile",
}


def run_seal(options: argparse.Namespace) -> int:
    """Seal the plain blobs; return 1 if one is damaged, or must stay plain."""
    settings = settings_of(options)
    if not settings.seals:
        raise SettingsError("sealing is off (ENTREPOT_SEALING), so nothing is to be sealed")
    prepare_existing(settings)
    check_whole(settings.database)
    begun = time.monotonic()
    report = asyncio.run(_seal(settings, options.limit_rate))
    seconds = time.monotonic() - begun
    write_damaged(report.damaged)
    if report.damaged:
        write_now(f"{len(report.damaged)} blobs are damaged: a push of the same image heals them\n")
    for outcome, words in _STAYED.items():
        if count := report.outcomes[outcome]:
            write_now(f"{count} blobs {words}\n")
    rate = size_text(int(report.sealed_bytes / max(seconds, 0.001)))
    sealed = report.outcomes[Outcome.SEALED]
    write_now(f"{sealed} blobs sealed, {size_text(report.sealed_bytes)}, {rate}/s\n")
    has_stayed = report.outcomes[Outcome.DAMAGED] or report.outcomes[Outcome.KEY_UNUSABLE]
    return 1 if has_stayed else 0


async def _seal(settings: Settings, bytes_per_second: int) -> SealReport:
    report = SealReport()
    with ProgressLine(sys.stderr) as line:
        async with Registry(settings).open() as stores:
            ctx, store = stores.ctx, stores.store
            providers = key_providers(settings, await check_install(settings, ctx))
            data_keys = DataKeys(Vault(ctx.database, providers, ctx.clock))
            ctx = replace(ctx, data_keys=data_keys, seals=True)
            try:
                await check_generation(ctx, store)
            except DatabaseWentBack as error:
                raise CommandFailure(f"nothing is sealed: {error}") from None
            total = await ctx.database.read(count_plain)

            def show() -> None:
                done = report.outcomes.total()
                size = f"{size_text(report.sealed_bytes)} of {size_text(total.stored_bytes)} sealed"
                line.show(f"blobs {done} of {total.object_count}, {size}")

            pace = Pace(bytes_per_second)
            sealer = Sealer(ctx, data_keys, store, pace, report.damaged.append)
            rows = plain_rows(ctx.database, FIRST)
            await seal_objects(sealer, rows, report, show, _WORKERS)
    return report


def run_status(options: argparse.Namespace) -> None:
    """Print how many bytes are stored plain, and the outcome of the last background turn."""
    settings = settings_of(options)
    status = on_data(settings, lambda stores: seal_status(stores.ctx.database))
    write_status(options.output, _lines(settings, status), _record(settings, status))


def _lines(settings: Settings, status: SealStatus) -> list[str]:
    rate = settings.plain_sealing.seal_rate_bytes
    setting = f"plain blobs are sealed at {size_text(rate)}/s or less"
    if not settings.seals:
        setting = "turned off (sealing = off): new blobs are stored plain, too"
    elif not rate:
        setting = "turned off (seal_rate_bytes = 0): new blobs alone are sealed"
    plain = status.plain
    left = (
        f"stored plain: {plain.object_count} of {status.object_count} blobs,"
        f" {size_text(plain.stored_bytes)} of {size_text(status.stored_bytes)}"
    )
    lines = [setting, left]
    if plain.damaged_count:
        lines.append(f"of these, known to be damaged: {plain.damaged_count} blobs")
    return [*lines, *last_turn(status.turn_ended_at, is_failed=status.is_failed)]


def _record(settings: Settings, status: SealStatus) -> Record:
    return {
        "rate_bytes": settings.plain_sealing.seal_rate_bytes if settings.seals else 0,
        "blobs": status.object_count,
        "stored_bytes": status.stored_bytes,
        "plain_blobs": status.plain.object_count,
        "plain_bytes": status.plain.stored_bytes,
        "damaged_plain_blobs": status.plain.damaged_count,
        "turn_ended_at": None if status.turn_ended_at is None else utc_text(status.turn_ended_at),
        "turn_failed": status.is_failed,
    }
