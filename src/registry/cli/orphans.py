"""``entrepot gc orphans``: list and restore stored files that belong to no row."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Final

from registry.blobstore.base import Orphan
from registry.blobstore.opening import open_store
from registry.cli.api import Record
from registry.cli.existing_data import prepare_existing
from registry.cli.failure import Missing, Misuse
from registry.cli.output import column, size_text, time_text, utc_text, write_now, write_records
from registry.cli.server_options import settings_of
from registry.gc.generations import accept_database
from registry.gc.orphans import list_orphans, take_back_owned
from registry.main import Registry
from registry.settings import Settings

_COLUMNS: Final = (
    column("ID", "id", is_whole=True),
    column("WAS", "kind"),
    column("BYTES", "bytes", size_text, is_number=True),
    column("SET ASIDE", "set_aside_at", time_text),
    column("KEPT UNTIL", "kept_until", time_text),
)


def run_listing(options: argparse.Namespace) -> int:
    """Print every orphan, the next to be deleted first."""
    settings = settings_of(options)
    prepare_existing(settings)
    orphans = asyncio.run(_list(settings))
    write_records(
        [_record(orphan, settings.delays.orphan) for orphan in orphans], _COLUMNS, options.output
    )
    return 0


def run_restoration(options: argparse.Namespace) -> int:
    """Move the orphans of these ids, or all, back to where they were, with or without a row."""
    if bool(options.ids) == options.are_all:
        raise Misuse("name the orphans by their ids or give --all, not both")
    settings = settings_of(options)
    prepare_existing(settings)
    count = asyncio.run(_restore(settings, None if options.are_all else options.ids))
    rest = "those that no row owns are set aside anew by the next scan"
    write_now(f"{count} files put back; {rest}\n")
    return 0


def run_acceptance(options: argparse.Namespace) -> int:
    """Accept the database as the right one from now on."""
    settings = settings_of(options)
    prepare_existing(settings)
    asyncio.run(_accept(settings))
    write_now(
        "The database is accepted: collection and the scan for orphans go on. Blobs that it does"
        " not know are set aside, and can be put back for some days ('entrepot gc orphans')\n"
    )
    return 0


async def _list(settings: Settings) -> Sequence[Orphan]:
    async with open_store(settings) as sweeper:
        return await list_orphans(sweeper)


async def _restore(settings: Settings, ids: Sequence[str] | None) -> int:
    async with open_store(settings) as sweeper:
        known = {orphan.object_id for orphan in await list_orphans(sweeper)}
        unknown = [each for each in ids or () if each not in known]
        if unknown:
            raise Missing(f"no orphan has the id {unknown[0]}; 'entrepot gc orphans' lists them")
        count = 0
        for each in sorted(known) if ids is None else dict.fromkeys(ids):
            count += await sweeper.take_back(each)
        return count


async def _accept(settings: Settings) -> None:
    async with Registry(settings).open() as process:
        ctx, sweeper = process.ctx, process.store
        await take_back_owned(ctx, sweeper)
        await accept_database(ctx, sweeper)


def _record(orphan: Orphan, kept: int) -> Record:
    return {
        "id": orphan.object_id,
        "kind": "object" if orphan.is_object else "staged",
        "bytes": orphan.stored_size,
        "set_aside_at": utc_text(orphan.set_aside_at),
        "kept_until": utc_text(orphan.set_aside_at + kept),
    }
